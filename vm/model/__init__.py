"""What there is. Objects and what is always true of them; nothing here decides anything.

- `tensor`: tensors, storages, copies; `operand`: a tensor bound to a copy
- `instruction`: instructions and their life; `reason`: why one waits for another
- `device_state`: what the engine keeps for one device; `session_queue`: one session's part of a stream's queue
- `session`, `account`: one client's ids and tables; what it is charged for; `directory`: sessions and names
- `plan`: what a signature means
"""
