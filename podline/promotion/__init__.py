"""Whether a trained model becomes the champion of its recipe, and why not."""
