"""NVIDIA GPUs, through CuPy.

- `kind`: the kind "cuda"; `options`: its options, and whether there are GPUs; both need no CuPy to import
- `cuda`: the device; `direct`: elementwise calls as generated kernels that one driver call launches; `loops`: the
  device code of CuPy's ufuncs; `own_kernel`: the interface of a generated kernel to those that launch it
- `fused`: fusions as one kernel each, and single ops that CuPy computes by several; `traced`: the loops of an op;
  `block`, `block_source`, `block_kernel`: what a generated kernel computes, its source, and its launches; `unfused`:
  the steps of a fusion one by one; `sources`, `compiling`: compiled sources, and the thread that compiles
- `graphs`: many launches by one call; `recording`: their capture; `nodes`: nodes with changing arguments; `driver`: the
  functions of CUDA's driver that CuPy lacks
- `products`: cuBLAS within a capture; `replaced`: replaced functions in CuPy's modules during a capture
- `ipc`: blocks that other processes may open
- `row_kernels`: softmax and norms as one launch each, `row_source`: their sources; `loss_kernels`, `loss_source`: the
  same for the cross entropy; `attention_kernels`: the rows of attention
- `copies`: copies between a GPU, the host and other GPUs; `pinned`: host memory that the GPU reaches directly;
  `staging`: copies of pageable memory through pinned memory
- `nccl`: communicators of NCCL; `nccl_library`: collectives by NCCL, and its threads
- `scratch`: the temporaries of CuPy's kernels
- `kernel_cache`: the directory of compiled kernels
"""
