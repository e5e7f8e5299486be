"""Podline's recipes for classes."""
