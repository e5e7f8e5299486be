"""The stages as data, and the processes that they run in. Their work is in data, training, evaluation and report."""
