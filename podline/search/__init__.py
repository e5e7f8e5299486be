"""Searches: values of a recipe by trials, and doubtful labels by models that did not train on them."""
