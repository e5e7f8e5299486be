"""Helpers for every layer: errors, numbers as text, progress, entry points, drawings. Imports no other layer."""
