"""The part of the client that reaches into `vm`: machines in this process.

- `local`: from an address to a machine
- `in_process`: the transport to a virtual machine, and its base; `serial_transport`: to a serial machine
- `process_memory`: where uploads to machines in this process lie
- `traces`: a `Trace` from a machine's answer
"""
