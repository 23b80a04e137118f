"""What of the client reaches into `vm`: a machine in this process.

- `transport`: the transport to it; `traces`: from what a machine sends of its trace to a `Trace`
"""
