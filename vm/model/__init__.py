"""What there is. Objects and what is always true of them; nothing here decides anything.

- `tensor`: tensors, storages, copies; `operand`: a tensor bound to a copy
- `instruction`: instructions and their life; `reason`: why one waits for another
- `device_state`: what the engine keeps for one device
- `session`, `account`: one client's ids and tables; what it is charged for
- `plan`: what a signature means
"""
