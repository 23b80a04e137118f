"""NVIDIA GPUs, through CuPy.

- `kind`: what is known of the kind before a device is opened; `options`: of which kind they are
- `cuda`: the device; `direct`: elementwise calls as kernels that are launched by one call; `loops`: the device code of
  CuPy's ufuncs; `own_kernel`: what a kernel of our own is to those that launch it
- `fused`: fusions as one kernel each, and single ops that CuPy computes by several; `traced`: the loops that an op
  consists of; `block`, `block_source`, `block_kernel`: what a kernel computes, its source, and its launches; `unfused`:
  the steps one by one; `sources`, `compiling`: what is compiled, and where
- `graphs`: many launches by one call; `recording`: their capture; `nodes`: what takes other arguments; `driver`: CUDA's
  driver where CuPy does not lead to it
- `products`: cuBLAS within a capture; `replaced`: other functions in CuPy's modules meanwhile
- `ipc`: blocks that other processes may open
- `row_kernels`: softmax and norms as one launch each, `row_source`: their sources; `loss_kernels`, `loss_source`: those
  of the cross entropy; `attention_kernels`: the rows of attention
- `copies`: between a GPU, the host and other GPUs; `pinned`: host memory that the GPU reaches directly; `staging`:
  pageable memory, through that
- `nccl`: communicators of NCCL; `nccl_library`: collectives by it, and its threads
- `scratch`: what CuPy's kernels take for temporaries
- `kernel_cache`: where compiled kernels are kept
"""
