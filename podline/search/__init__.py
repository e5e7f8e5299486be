"""Searches by many trainings: values of a recipe, and doubtful labels. The training itself is in training."""
