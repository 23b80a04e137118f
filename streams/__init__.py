"""Devices, their memory and their streams.

- `device`, `stream`: the interfaces of both; `graph`: many launches by one call, on devices that can
- `kinds`: the kinds of devices, each defined in its own package
- `library`: the interface of a library that carries out collectives between devices
- `catalogue`: from names and tables of options to open devices; `options`: the options, their values and meanings
- `host/`: the host's processors, and what `sim` devices have in common with them
- `launching/`: streams of devices on which calling a kernel only launches it
- `cuda/`: NVIDIA GPUs
- `sim/`: simulated accelerators
- `disk/`: the tier below the host
- `gangs/`: launches of such a library on several nodes
- `links/`: values that go from one machine to another; `client_stream`: what waits for functions of clients
- `threads/`: threads of streams, helpers of kernels, and how one stream waits for another
- `merging`: what comes from another device is added piece by piece
- `pool`: memory that is reused
- `faults`: fault injection
"""
