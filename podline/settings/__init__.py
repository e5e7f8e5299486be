"""The settings of a machine, which do not change results, and the processes that train together."""
