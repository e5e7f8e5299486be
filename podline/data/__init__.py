"""Records, manifests, planning, sources and the reader: everything about data that needs no TensorFlow."""
