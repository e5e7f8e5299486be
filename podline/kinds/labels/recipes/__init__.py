"""Podline's recipe for several labels per image."""
