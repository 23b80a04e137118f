"""The records of a trace, and the facts that follow from each of them.

- `records`: the records of one recording, and the run of each
- `filter`: the records that a command selects; `span_names`: the names of spans, and selection by name
- `derived`: facts of a record: its waiting and running time, its operands, its bytes and operations
- `text`: formatting for people; `columns`: records as a NumPy array or a DataFrame
- `stream_order`: the order of instructions on a stream; `device_times`: the times of launched ops on the device;
  `work`: the times in which devices computed, and the transfers meanwhile
"""
