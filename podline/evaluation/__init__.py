"""Evaluates a model on every example of a split, once; gives each figure a confidence interval."""
