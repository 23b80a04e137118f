"""Drawing for people: tables, figures and progress, without a command or a daemon.

- `tables`: tables on a terminal, or in a file; `figures`: readable numbers
- `terminal`: what a terminal can do, and a bar for what takes long; `keyboard`: single keys
"""
