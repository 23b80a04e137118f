"""Ops of users: `tensord.op` makes a definition of a plain function.

- `signature`: operands, attributes and the number of results, from the function's signature
- `definition`: the registered op, and the digest that shows whether two processes have the same op
- `inferring`: the infer function of a user, whose errors and results are checked
- `kernels`: the functions of a user as kernels, whose results are checked
- `layouts`: the layouts of global tensors that a user states

Sources: PyTorch's `torch.library.custom_op` (the schema is the function's signature); JAX's abstract evaluation.
"""
