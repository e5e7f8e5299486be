"""Evaluation: every example once, with intervals."""
