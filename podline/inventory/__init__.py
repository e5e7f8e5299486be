"""The content of a store: listing, verification, pruning."""
