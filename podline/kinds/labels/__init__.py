"""Any number of labels for each image."""
