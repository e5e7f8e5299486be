"""Finds labels that models doubt, each judged by a model that did not train on it, and applies people's reviews."""
