"""The command line: `tensord`.

- `main`: all commands together; `terminal`, `figures`: readable tables and numbers
- `ask`: a session for one question; `source`: the trace that a command reads
- `serve`, `keygen`, `doctor` (with `doctor_checks`, `doctor_gpu`), `top`, `ops`
- `admin`: status, sessions, tensors, devices
- `trace`, with `record`, `show`, `stats`, `memory` and `dag`; `selection`: the options that select records; `output`:
  what a command writes
"""
