"""Tools that read a trace. They know records and nothing of the engine.

- `trace`: the records of one recording; `parts`: from what a machine sends to records
- `file`, `recording`: trace files, read and written
- `dependences`: the rules of dependence as a model of their own; `verify`: every edge recomputed by it
- `graph`, `graph_export`: the logical DAG; `stream_order`: who stood behind whom on a stream
- `why`, `why_export`: what an instruction waited for; `timeline`: Chrome's trace format; `text`: words for people
"""
