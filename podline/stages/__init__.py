"""The stages as data: specs, results, the table of all stages, and how a finished one is found."""
