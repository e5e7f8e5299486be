"""Recipes: every setting that changes a result, and the names of all parts. What the parts do is above."""
