"""Batches for training and evaluation: read, augment, mix, prefetch. Files and records are in data."""
