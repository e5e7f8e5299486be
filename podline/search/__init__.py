"""Searches for values of a recipe: trials, each a run of the store, compared by held-out examples."""
