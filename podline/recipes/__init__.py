"""Recipes: what to train, with what settings, and the result to expect."""
