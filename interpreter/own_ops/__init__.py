"""Ops of users: a definition made of a plain function, as `tensord.op` makes it.

- `signature`: operands, attributes and the number of results, from the function's signature
- `definition`: the op that is registered, and what tells whether two processes have the same one
- `inferring`: the infer function of a user, whose errors and results are checked
- `kernels`: the functions of a user as kernels, whose results are checked
- `layouts`: the layouts of global tensors that a user states

Sources: PyTorch's `torch.library.custom_op` (the schema is the function's signature); JAX's abstract evaluation.
"""
