"""The recipe that Podline ships for several labels per image."""
