"""The commands of `tensord trace`.

- `trace`: the group, and the commands verify, timeline and why
- `record`: the commands record and dump, with `recorder` and `recorded_values`
- `replay`, `bisect`: commands of the same names, with `replay_options`
- `show`, `stats`, `diff`, `memory`, `dag`, `advise`: commands of the same names
- `source`: loads the trace that a command reads, and has the options that select its records
"""
