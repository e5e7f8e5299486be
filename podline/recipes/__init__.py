"""Recipes: data set, settings, and the expected result."""
