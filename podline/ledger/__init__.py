"""The ledger: one entry for every run that ended, and the chain beside it."""
