"""The command line: `tensord`.

- `main`: the commands put together; `terminal`, `figures`: tables and numbers for people
- `ask`: a session for a question; `source`: where a trace comes from
- `serve`, `keygen`, `doctor` (with `doctor_checks`, `doctor_gpu`), `top`, `ops`
- `admin`: status, sessions, tensors, devices
- `trace`, with `record` and `show`
"""
