"""Commands on programs and their ops: `run`, `ops` and `warm`, which calls ops by `warming`."""
