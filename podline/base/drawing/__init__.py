"""Draws pictures and charts with matplotlib and OpenCV."""
