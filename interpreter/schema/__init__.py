"""Definitions of ops, and checks of their arguments.

- `opdef`: an op's definition, and the registry of them; `own_op`: what those from outside have besides
- `infer`: the metas of results from those of operands, and checks of `out=`
- `attributes`, `indexing`: checks and normal forms of attributes and indices
- `promotion`: the result's dtype, and what a Python scalar must satisfy
- `library`: what kernels call besides NumPy and CuPy
- `scratch`: the memory of kernels' temporaries; `pieces`: kernels that work piece by piece
- `sample_calls`: valid calls of an op, made from its definition
- `opdoc`: descriptions of ops for people; `op_table`: the same as a table
"""
