"""The ledger: one entry for every run that ended."""
