"""The CUDA runtime's semantics without a GPU: CuPy's calls, and the times at which their work happens.

- `gpu`: devices, streams, events, errors; a seed chooses the next queue to go on
- `memory`: device and pinned memory, CuPy's pools; freed memory is poisoned in stream order
- `ipc`: memory that other processes open
- `arrays`: CuPy's arrays; a function of NumPy is launched, and runs when its queue gets there
- `graphs`: captures, CUDA graphs, and the driver's functions for them; `cublas`: products, also within a capture
- `nccl`: collectives between the devices, as kernels that wait for each other
- `values`: results of CuPy's functions where they differ from NumPy's
- `names`: the names that CuPy has, from `names.txt`; `nccl_stub`: a library for reading the names of CuPy's NCCL module
- `module`: the substitute for the module `cupy`

A call launches, and the device does the work later: when the host waits for an event or a stream, when it asks whether
an event is done, or when a test calls `Gpu.step`. So a missing wait, or memory that is freed too early, gives wrong
bits in some of the orders that the seeds give.
"""
