"""The command line: `tensord`.

- `main`: errors and exit statuses; `streams`: those that are closed; `application`: which commands there are;
  `commands`: groups of commands, imported when they are called; `options`: those of many
- `terminal`, `figures`: readable tables and numbers
- `ask`: one question to a daemon; `source`: the trace that a command reads
- `serve`, `stop`, `keygen`, `top` (with `keyboard` and `screen_tables`), `run`, `ops`, `completion`
- `doctor`, with `doctor_checks`, `doctor_memory`, `doctor_checkpoints`, `doctor_gpu`, `doctor_cuda`
- `admin`: status, sessions, tensors, devices, and how they are `shown`; `health`: what needs an operator; `held`: who
  holds their memory
- `evict`, `checkpoint` (also restore), `load`, which act; `generations`: what a directory of checkpoints holds;
  `waiting`: a bar for what takes long
- `trace`, with `record`, `show`, `stats`, `memory` and `dag`; `selection`: the options that select records, as one
  filter; `output`: what a command writes
"""
