"""Simulated accelerators, for machines that have none.

- `kind`: the kind "sim"
- `sim`: the device, whose kernels run on threads as those of the host do
- `launching_sim`: one that launches, as a GPU does; `sim_queue`: what stands in for CUDA's streams and events
"""
