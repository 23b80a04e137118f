"""The records of a trace, and what each of them says.

- `records`: the records of one recording, and which run each is of
- `filter`: which records a command is about; `span_names`: how spans are named, and found by that
- `derived`: what follows from a record: how long it waited and ran, what it is of, its bytes and operations
- `text`: formatting for people; `columns`: records as a NumPy array or a DataFrame
- `stream_order`: the order of instructions on a stream; `device_times`: when a device ran what was launched;
  `work`: when it computed, and what moved meanwhile
"""
