"""Finds labels that are probably wrong, by models that were not trained on them, and applies people's reviews."""
