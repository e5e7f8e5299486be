"""The comparison of two runs, shared by report, commands, promotion and nightly runs. Rules are in contract."""
