"""The settings of a machine, and the processes that train together. What changes a result is in recipes."""
