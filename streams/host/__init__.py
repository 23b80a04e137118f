"""The host's processors, with NumPy.

- `kind`: the kind "cpu"; `cpu`: the device; `host`: what it has in common with `sim` devices
- `blas`: the limit of threads that BLAS uses for one call
- `shared`: blocks of memory that other processes may map
- `fused_kernel`: fusions of ops on NumPy arrays, piece by piece; `fused_layout`: where their temporaries lie
"""
