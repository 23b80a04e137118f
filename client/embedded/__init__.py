"""The part of the client that reaches into `vm`: machines in this process.

- `local`: from an address to a machine; `in_process`: the common base of both transports
- `transport`: the transport to a virtual machine; `serial_transport`: to a serial machine
- `traces`: a `Trace` from a machine's answer
"""
