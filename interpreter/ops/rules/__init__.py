"""Layout rules (`interpreter.layouts.rules`), grouped by what ops have in common.

- `reasons`: the reasons for which an op has no rule
- `combining`: several rules for one op, and the rules of linear ops
- `stacks`: elementwise ops, and ops on stacks of vectors or matrices
- `axes`: ops that work along some axes, reductions, axes in another order
- `views`: reshape, basic indices, and ops that change the number of elements of an axis
- `products`: matmul and its relatives
- `indexing`: indices that contain tensors
- `networks`: convolution, normalisation, losses, embedding, attention
"""
