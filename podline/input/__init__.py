"""tf.data on top of the reader: the stages read, augment, batch, prefetch."""
