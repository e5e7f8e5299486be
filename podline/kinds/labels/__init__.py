"""The kind of task with any number of labels per image."""
