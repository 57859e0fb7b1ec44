"""One module a command, loaded when that command is called."""
