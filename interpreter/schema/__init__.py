"""Definitions of ops, and checks of their arguments.

- `opdef`: an op's definition, and the registry of ops; `own_op`: the additional properties of users' ops
- `bound_kernels`: kernels as functions of operands and results
- `infer`: the metas of results from those of operands, and checks of `out=`
- `attributes`, `indexing`: checks and normal forms of attributes and indices
- `promotion`: the dtype of a result, and checks of Python scalars
- `library`: libraries that kernels call besides NumPy and CuPy
- `scratch`: the memory of kernels' temporaries; `pieces`: kernels that are called on one piece after another
- `sample_calls`: valid calls of an op, made from its definition
- `opdoc`: descriptions of ops for documents; `op_table`: the same as a table; `suggestions`: for misspelt names
"""
