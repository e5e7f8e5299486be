"""Kinds of task, classification and pose: each is one contract, and no other module asks which of them a run is."""
