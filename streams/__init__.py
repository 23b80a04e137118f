"""Devices, their memory and their streams.

- `device`, `stream`: the interfaces; `catalogue`: from names and options to open devices
- `options`: what options of devices may be and mean
- `cpu`, `sim`, `cuda` (`cuda_stream`): the devices; `host`: what cpu and sim share
- `worker`: an in-order queue with a thread; `events`: how one stream waits for another
- `pool`: memory that is used again; `shared`: blocks that other processes may map
- `faults`: what may go wrong on request; `blas`: how many threads BLAS may use
"""
