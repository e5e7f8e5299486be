"""Batches for training and evaluation: read, augment, mix, prefetch; ``podline.data`` has the reader of records."""
