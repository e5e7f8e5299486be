"""The comparison of two runs: report, commands, promotion and nights all use it, so they cannot disagree."""
