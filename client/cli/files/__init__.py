"""Commands on files and directories: `checkpoint` (also restore) and `load`."""
