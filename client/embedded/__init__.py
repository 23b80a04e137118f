"""The part of the client that reaches into `vm`: machines in this process.

- `local`: from an address to a machine
- `in_process`: the transport to a virtual machine, and its base class; `serial_transport`: to a serial machine
- `process_memory`: memory for uploads to machines in this process
- `traces`: a `Trace` from a machine's answer
"""
