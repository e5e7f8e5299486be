"""Stages on the TPU's own node, the lease on the TPU, and the patrol between runs."""
