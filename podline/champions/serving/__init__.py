"""Serves a champion over HTTP, with TensorFlow Serving's REST API."""
