"""Why an instruction took as long as it did.

- `why`: its waits and the critical path; `why_export`: writes these as text and JSON
- `critical`: the critical path in a picture of the graph
- `run_notes`: notes about runs in such an explanation
"""
