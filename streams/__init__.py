"""Devices, their memory and their streams.

- `device`, `stream`: the interfaces; `catalogue`: from names and options to open devices
- `options`: the options of devices, their values and meanings
- `cpu`, `sim`, `cuda` (`cuda_stream`): the devices; `host`: the common part of cpu and sim
- `worker`: an in-order queue with a thread; `events`: how one stream waits for another
- `pool`: memory that is reused; `shared`: blocks that other processes may map
- `faults`: fault injection; `blas`: the limit of BLAS threads
"""
