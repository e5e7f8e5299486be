"""The kinds of task that Podline ships, and the base for those of packages. The contract is in contract."""
