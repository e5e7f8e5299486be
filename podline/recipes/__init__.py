"""Recipes: all settings that change a result, and the names of all models, optimizers, losses, measures and kinds."""
