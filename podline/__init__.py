"""Podline: every night, raw vision archives become a trained, evaluated, reported model."""

__version__ = "1.0.0"
