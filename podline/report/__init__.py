"""Writes the pages about a run, all nights, and a comparison, from stored results; nothing is evaluated again."""
