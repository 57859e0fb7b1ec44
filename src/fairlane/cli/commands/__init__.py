"""One module per command, loaded when that command is called."""
