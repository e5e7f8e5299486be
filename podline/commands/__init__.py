"""One module per command, imported when the command is called, and the templates of ``podline init``."""
