"""One module per command, imported when it is called, and the templates of ``podline init``. Stages do the work."""
