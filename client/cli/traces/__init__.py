"""`tensord trace`.

- `trace`: the group, and its small commands; `record` (also dump), with its `recorder`; `show`; `stats`; `diff`;
  `memory`; `dag`; `advise`
- `source`: the trace that a command reads, and the options that select records of it
"""
