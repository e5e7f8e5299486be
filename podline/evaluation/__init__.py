"""Answers of a trained model: on every example of a split once, and for pictures. Each kind's figures are in kinds."""
