"""Why an instruction took as long as it did.

- `why`: its waits and the critical path; `why_export`: the same as text and JSON
- `critical`: the critical path in a picture of the DAG
- `run_notes`: what such an explanation says of runs
"""
