"""The records of a trace, and what each of them says.

- `records`: the records of one recording; `runs`: which run an instruction is of
- `filter`: which records a command is about; `span_names`: how spans are named, and found by that
- `phases`: how long an instruction waited and ran; `volume`: what it is of, its bytes and operations
- `text`: formatting for people
- `plain`: a record with names for all its fields; `columns`: records as a NumPy array or a DataFrame
- `stream_order`: the order of instructions on a stream
"""
