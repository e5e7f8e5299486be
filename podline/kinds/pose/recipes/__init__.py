"""The recipes that Podline ships for people."""
