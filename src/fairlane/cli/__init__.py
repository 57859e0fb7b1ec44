"""The command line: parse, call, print. `fairlane --help` lists the commands."""
