"""Bounds of a recipe's values that several of its sections share."""

from __future__ import annotations

MOST = 10**9
"""The upper bound of numbers of steps, examples in a batch and the like: 32 bits hold it."""
NAME = r"^[a-z0-9][a-z0-9_.-]*$"
"""The pattern of names of recipes, models, optimizers and measures."""
