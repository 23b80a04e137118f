"""How a command is declared: `commands`, groups of them, imported when they are called; `options` of many, and how a
command writes what it has found."""
