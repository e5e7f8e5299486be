"""The commands, imported when they are called, and the templates of a new project. Each calls the library."""
