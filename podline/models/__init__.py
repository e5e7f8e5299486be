"""Networks, and their parameter and operation counts."""
