"""The CUDA runtime's semantics without a GPU: what CuPy's calls mean, down to when the work happens.

- `gpu`: devices, streams, events, errors; which queue goes on next is drawn by a seed
- `memory`: device and pinned memory, CuPy's pools; memory that is free is poisoned in stream order
- `ipc`: memory that other processes open
- `arrays`: CuPy's arrays; a function of NumPy is launched, and runs when its queue gets there
- `graphs`: captures, CUDA graphs, and the driver's functions for them; `cublas`: products, also within a capture
- `nccl`: collectives between the devices, as kernels that wait for each other
- `values`: what CuPy's functions give where they depart from NumPy's
- `names`: the names that CuPy has, from `names.txt`; `nccl_stub`: what CuPy needs to say those of NCCL
- `module`: what stands in for the module `cupy`

A call launches, and the device does the work later: when the host waits for an event or a stream, when it asks whether
an event is done, or when a test calls `Gpu.step`. So a missing wait, or memory that is freed too early, makes wrong
bits in some of the orders that the seeds give.
"""
