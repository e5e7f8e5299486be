"""The kind of task with one class per image."""
