"""From a call to a message.

- `calls`: issues ops; `by_name`: the entry point for any op; `signatures`: calls that were made before
- `op_invocation`: a call of an op, and the handlers that it passes
- `checks`: checks of arguments, for all rooms
- `host_calls`: functions of the program that the machine calls for their results
- `contexts`: release tensors that were made in one block
"""
