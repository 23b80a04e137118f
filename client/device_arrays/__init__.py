"""Arrays of this process's GPU: values of tensors as such arrays, and such arrays as values.

- `lent`: values that are read in place; `blocks`: open blocks of a daemon's memory
- `given`: arrays of other libraries, for tensors
- `returns`: gives borrowed values back
- `cuda`: CUDA in this process
"""
