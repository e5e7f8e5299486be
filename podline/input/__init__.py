"""Training and evaluation input with tf.data on top of the reader: read, augment, batch, prefetch."""
