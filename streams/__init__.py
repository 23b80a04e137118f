"""Devices, their memory and their streams.

- `device`, `stream`: the two interfaces; `graph`: the interface for many launches by one call (CUDA graphs)
- `kinds`: the registry of kinds of devices, each defined in its own package
- `library`: the interface of a library that carries out collectives between devices (NCCL)
- `catalogue`: opens devices from names and tables of options; `options`: the options, their values and meanings
- `host/`: cpu devices, and the base class that they share with `sim` devices
- `launching/`: streams of devices on which calling a kernel only launches it
- `cuda/`: NVIDIA GPUs
- `sim/`: simulated accelerators
- `disk/`: the store, the tier below the host
- `gangs/`: launches of a collective library on several nodes
- `links/`: the transport of values between nodes; `client_stream`: the stream of calls of clients' functions
- `threads/`: threads of streams, helper threads of kernels, and how one stream waits for another
- `merging`: merges data of another device piece by piece
- `pool`: memory that is reused
- `faults`: fault injection
"""
