"""Finds labels that models doubt which were not trained on them, and applies people's reviews of these labels."""
