"""`tensord trace`.

- `trace`: the group, and its small commands; `record` (also dump), with `recorder` and `recorded_values`; `show`;
  `stats`; `diff`; `memory`; `dag`; `advise`; `replay` and `bisect`, with `replay_options`
- `source`: the trace that a command reads, and the options that select its records
"""
