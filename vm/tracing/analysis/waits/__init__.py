"""The reasons for the duration of an instruction.

- `why`: its waits and the critical path; `why_export`: the same as text and JSON
- `critical`: the critical path in a picture of the DAG
- `run_notes`: notes about runs in such an explanation
"""
