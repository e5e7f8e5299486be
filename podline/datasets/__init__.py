"""Data sets as wholes: fingerprint, draft, validation, census, changes."""
