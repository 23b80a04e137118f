"""The command line: `tensord`.

- `main`: errors and exit codes; `application`: all commands together
- `terminal`, `figures`: readable tables and numbers
- `ask`: a session for one question; `source`: the trace that a command reads
- `serve`, `keygen`, `top` (with `keyboard`), `ops`, `completion`
- `doctor`, with `doctor_checks`, `doctor_gpu`, `doctor_cuda`
- `admin`: status, sessions, tensors, devices
- `trace`, with `record`, `show`, `stats`, `memory` and `dag`; `selection`: the options that select records; `output`:
  what a command writes
"""
