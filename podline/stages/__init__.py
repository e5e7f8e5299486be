"""The stages as data: specs, results, the table of all stages, and the search for finished ones."""
