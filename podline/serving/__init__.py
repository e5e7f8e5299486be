"""A champion over HTTP, in TensorFlow Serving's REST dialect."""
