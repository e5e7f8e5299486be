"""What a store holds: found, listed, verified, pruned."""
