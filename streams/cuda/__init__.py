"""NVIDIA GPUs, through CuPy.

- `cuda`: the device; `direct`: elementwise calls as kernels that are launched by one call
- `own_kernel`: what a kernel of our own is to those that launch it
- `pinned`: host memory from and to which the GPU copies directly; `staging`: copies of pageable memory through it
- `scratch`: what CuPy's kernels take for temporaries
- `kernel_cache`: where compiled kernels are kept
"""
