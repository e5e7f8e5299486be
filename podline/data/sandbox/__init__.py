"""Child processes with limits for code that parses untrusted files."""
