"""The shared base of kinds whose models answer each image separately; kinds of installed packages extend it."""
