"""From arrays of the host to tensors, and back.

- `uploads`: from values to a tensor; `padding`: tensors that are padded on their device
- `through_blocks`: from an array on the GPU to a tensor of a daemon
- `host_arrays`: arrays that are uploaded without a copy
- `host_results`: results that are copied to the host before they are asked for
"""
