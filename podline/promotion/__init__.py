"""Decides whether a trained model becomes the champion of its recipe, with reasons."""
