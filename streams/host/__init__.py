"""The host's processors, with NumPy.

- `kind`: the kind "cpu"; `cpu`: the device; `host`: the base class of cpu and sim devices
- `blas`: the limit of threads that BLAS uses for one call
- `shared`: blocks of memory that other processes may map
- `fused_kernel`: runs fusions of ops on NumPy arrays, piece by piece; `fused_layout`: where their temporaries lie
"""
