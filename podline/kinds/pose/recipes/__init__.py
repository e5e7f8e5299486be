"""Podline's recipes for people and keypoints."""
