"""Rules of layouts (`interpreter.layouts.rules`), by what ops have in common.

- `reasons`: why an op has no rule
- `combining`: one rule after another, and those of linear ops
- `stacks`: elementwise ops, and ops on stacks of vectors or matrices
- `axes`: ops that work along some axes, reductions, axes in another order
- `views`: reshape, basic indices, and what changes the number of elements of an axis
- `products`: matmul and its relatives
- `indexing`: tensors that select
- `networks`: convolution, normalisation, losses, embedding, attention
"""
