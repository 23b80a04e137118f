"""From arrays of the host to tensors, and back.

- `uploads`: from values to a tensor, perhaps a larger one
- `host_arrays`: arrays that are uploaded as they lie
- `host_results`: results that come near the host before they are asked for
"""
