"""Drawing for people: tables, figures and progress, without a command or a daemon.

- `tables`: tables on a terminal, or in a file; `screen_tables`: those of `top`; `figures`: readable numbers
- `progress`: a bar for what takes long; `keyboard`: single keys
"""
