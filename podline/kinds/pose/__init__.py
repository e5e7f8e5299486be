"""The kind of task that finds people and their joints."""
