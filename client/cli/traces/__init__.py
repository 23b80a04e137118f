"""`tensord trace`.

- `trace`: the group, and its small commands; `record` (also dump), `show`, `stats` (also diff), `memory`, `dag`
- `source`: the trace that a command reads; `selection`: the options that select records, as one filter
"""
