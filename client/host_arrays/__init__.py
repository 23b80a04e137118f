"""From arrays of the host to tensors, and back.

- `uploads`: from values to a tensor, perhaps a larger one
- `through_blocks`: from an array on the GPU to a tensor of a daemon
- `host_arrays`: arrays that are uploaded as they lie
- `host_results`: results that come near the host before they are asked for
"""
