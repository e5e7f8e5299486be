"""Defines bounds of values that several sections of a recipe share."""

from __future__ import annotations

MOST = 10**9
"""The upper bound of counts, such as steps; it fits into 32 bits."""
NAME = r"^[a-z0-9][a-z0-9_.-]*$"
"""The pattern of names of recipes, data sets, models, optimizers and measures."""
