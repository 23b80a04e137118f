"""How a command is declared.

- `commands`: groups of commands, imported when they are called; `options`: those of many
- `output`: what a command writes
"""
