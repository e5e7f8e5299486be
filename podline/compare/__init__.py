"""The comparison of two runs, the same for report, commands, promotion and nights. Rules and chance are in contract."""
