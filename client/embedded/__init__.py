"""What of the client reaches into `vm`: machines in this process.

- `local`: from an address to a machine; `in_process`: what the transports to both kinds share
- `transport`: the transport to a virtual machine; `serial_transport`: to a serial machine
- `traces`: from what a machine sends of its trace to a `Trace`
"""
