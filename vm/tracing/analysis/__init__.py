"""Tools that read a trace. They know records, and nothing of the engine.

- `trace`: the records of one recording; `parts`: from a machine's slices to records
- `file`, `recording`: trace files, read and written
- `dependences`: the rules of dependence as a model of their own; `verify`: every edge recomputed by it
- `graph`, `graph_export`: the logical DAG; `stream_order`: the order of instructions on a stream
- `why`, `why_export`: explanations of waits; `timeline`: Chrome's trace format; `text`: formatting for people
"""
