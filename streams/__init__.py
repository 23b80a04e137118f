"""Devices, their memory and their streams.

- `device`, `stream`: the interfaces; `catalogue`: from names and options to open devices
- `options`: the options of devices, their values and meanings
- `cpu`, `sim`, `cuda`: the devices; `host`: the common part of cpu and sim
- of a cuda device: `cuda_stream` and `cuda_launcher`: its threads; `cuda_marks`: its events; `pinned`: host memory;
  `cuda_staging`: copies of pageable memory; `cuda_scratch`: what CuPy's kernels take for temporaries;
  `kernel_cache`: where compiled kernels are kept
- of a sim device that launches: `sim_launches`, and `sim_queue`: in the place of CUDA's streams and events
- `worker`: an in-order queue with a thread; `events`: how one stream waits for another
- `crew`: threads that help with large kernels
- `fused_kernel`: fusions of ops on NumPy arrays, piece by piece; `fused_layout`: where their temporaries lie
- `pool`: memory that is reused; `shared`: blocks that other processes may map
- `store`: the tier below the host, on disk; `spill`: its file; `stored`: arrays that lie in files;
  `kept`: in checkpoints
- `faults`: fault injection; `blas`: the limit of BLAS threads
"""
