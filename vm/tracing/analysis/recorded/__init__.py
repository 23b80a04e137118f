"""The records of a trace, and facts that follow from single records.

- `records`: the records of a trace, and the run of each
- `filter`: selects the records for a command; `span_names`: names for the spans of loops, and selection by name
- `derived`: facts about a record: its waiting and running time, its operands, its bytes and operations
- `text`: formatting for people; `columns`: records as a NumPy array or a DataFrame
- `stream_order`: the order of instructions on a stream; `device_times`: the times of launched ops on the device;
  `work`: the times in which devices computed, and how much transfers overlapped with them
"""
