"""Why an instruction took as long as it did.

- `why`: its waits and the critical path; `why_text`, `why_json`: write these
- `critical`: the critical path in a picture of the graph
- `run_notes`: notes about runs in such an explanation
"""
