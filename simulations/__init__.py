"""Simulations of the rules by which Podline decides; not part of the installed package."""
