"""Lists, verifies and prunes the content of a store."""
