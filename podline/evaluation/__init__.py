"""Runs trained models: over each example of a split for an evaluation, and over pictures. Figures are in kinds."""
