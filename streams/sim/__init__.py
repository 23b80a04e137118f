"""Simulated accelerators, for machines that have none.

- `kind`: the kind "sim"
- `sim`: the device, whose kernels run on threads as those of cpu devices do
- `launching_sim`: a device that launches, as a GPU does; `sim_queue`: its substitute for CUDA's streams and events
"""
