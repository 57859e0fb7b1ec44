"""The command line, through its public face: in this process, and as a process of its own."""
