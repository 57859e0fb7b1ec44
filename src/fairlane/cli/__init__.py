"""The command line: parse, call, print. `fairlane --help` lists what there is."""
