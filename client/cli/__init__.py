"""The command line: `tensord`.

- `main`: errors and exit statuses; `application`: which commands there are
- `serve`, `keygen`, `completion`: commands that neither ask a daemon nor draw anything

Rooms, each of which imports only those behind it in this list:

- `cluster`: commands on several machines
- `doctor`
- `metrics`, `web`, `traces`, `files`, `programs`: monitoring; a page; commands on traces, on files, on programs
- `daemon`: commands that ask a running daemon, and how a daemon is asked
- `line`: how a command is declared, and what it writes
- `drawing`: tables, numbers, a bar
"""
