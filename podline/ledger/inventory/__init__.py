"""Lists, verifies and prunes the data sets and runs of a store."""
