"""The shared part of kinds whose models answer each image separately; kinds of installed packages build on it."""
