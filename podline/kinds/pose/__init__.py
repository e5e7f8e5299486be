"""People and their joints."""
