"""Commands on programs and what they are made of: `run` and `ops`."""
