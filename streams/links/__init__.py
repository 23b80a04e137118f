"""Links: values that go from one machine to another.

- `link`: the interface; `link_stream`: the stream of what waits for other nodes
- `failures`: what the other half of a transfer has still to hear
- `tcp/`: between daemons
- `exchange`: where both halves of each transfer meet, within one process
- `in_memory`: several machines in one process; `loopback`: a machine alone, which sends to itself
"""
