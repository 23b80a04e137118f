"""`tensord trace`.

- `trace`: the group, and its small commands; `record` (also dump), with its `recorder` and with `durations` as people
  write them; `show`; `stats` (also diff); `memory`; `dag`
- `source`: the trace that a command reads; `selection`: the options that select records, as one filter
"""
