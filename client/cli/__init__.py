"""The command line: `tensord`.

- `main`: errors and exit statuses; `application`: the table of commands
- `serve`, `keygen`, `completion`: commands that neither ask a daemon nor draw anything

Rooms, each of which imports only later ones in this list:

- `cluster`: commands on several machines
- `doctor`
- `metrics`, `web`, `traces`, `files`, `programs`: monitoring; a page; commands on traces, on files, on programs
- `daemon`: commands that ask a running daemon, and the code that asks it
- `line`: declaring a command, and writing its output
- `drawing`: tables, numbers, a bar
"""
