"""Drawing for people: tables, figures and progress, independent of commands and daemons.

- `tables`: tables on a terminal, or in a file; `figures`: readable numbers
- `terminal`: the capabilities of a terminal, and a progress bar; `keyboard`: single keys
"""
