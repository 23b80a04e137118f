"""Tools that read a trace. They know records, and nothing of the engine.

- `trace`: the records of one recording; `parts`: from a machine's slices to records
- `runs`: which run an instruction is of; `routine_parts`: routines and runs from plain values
- `file`, `recording`: trace files, read and written
- `filter`: which records a command is about; `span_names`: how spans are named, and found by that
- `volume`: what a record is of, its bytes and operations
- `stats`: sums over a trace, and two traces compared; `memory`, `memory_picture`: memory over time
- `plain`: a record with names for all its fields; `columns`: records as a NumPy array or a DataFrame
- `dependences`: the rules of dependence as a model of their own; `verify`: every edge recomputed by it
- `inside_steps`: the steps of a run as records, and where their values lie
- `insides`: programs of routines and calls of their runs; `inside_check`: what was compiled against the program;
  `views`: where views lie, as NumPy has it
- `graph`: the logical DAG; `fold`: chains, lines or spans as one node each, `layers`: where nodes go; `pictures`,
  `graph_export`, `page` (with `page_template`): the formats; `stream_order`: the order of instructions on a stream
- `run_notes`: what explanations of waits say of runs
- `why`, `why_export`: these explanations; `timeline`: Chrome's trace format; `text`: formatting for people
"""
