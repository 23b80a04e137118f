"""Commands on programs and what they are made of: `run`, `ops` and `warm`, which calls ops by `warming`."""
