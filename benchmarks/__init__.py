"""Comparisons of Podline with plain code: ``podline benchmark``.

Each benchmark gives both sides the same input, calls them in turn, and compares medians. Measurements happen in child
processes, so this package imports neither TensorFlow nor Beam.
"""
