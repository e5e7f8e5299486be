"""Recipes: data set, settings, and the result to expect."""
