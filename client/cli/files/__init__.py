"""Commands on files and directories: `checkpoint` (also restore), with `generations`, which lists them; `load`."""
