"""The recipes that Podline ships for classes."""
