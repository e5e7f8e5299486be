"""The kind of task that detects people and their joints."""
