"""Evaluates a model on every example of a split once, and gives each figure a confidence interval."""
