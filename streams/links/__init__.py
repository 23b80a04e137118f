"""Links: the transport of values from one machine to another.

- `link`: the interface; `link_stream`: the stream of instructions that wait for other nodes
- `failures`: errors of transfers that the other half has not heard of yet
- `tcp/`: links between daemons
- `exchange`: a link within one process, where both halves of each transfer meet
- `in_memory`: links of several machines in one process; `loopback`: links of a single machine to itself
"""
