"""Everything impure: the command line, run folders, checkpoints, progress."""
