"""The ledger, with an entry for every run that ended, and the inventory of a store. Pages are in report."""
