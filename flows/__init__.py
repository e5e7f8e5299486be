"""The flows, one file each. They compose tasks, and define no classes."""
