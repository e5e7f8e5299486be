"""Recipes, the settings that change a result, and the names of all parts, which are built in models and training."""
