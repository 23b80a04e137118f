"""Arrays of this process's GPU: tensors' values as such arrays, and such arrays as values.

- `lent`: values that are read where they lie; `blocks`: what is open of a daemon's memory
- `given`: arrays of other libraries, for tensors
- `returns`: when what was lent is given back
- `cuda`: CUDA in this process
"""
