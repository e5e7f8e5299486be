"""What a person runs: one file per flow."""
