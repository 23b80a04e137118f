"""The engine's objects and their invariants; nothing here decides anything.

- `tensor`: tensors, storages, copies, and a tensor bound to a copy
- `instruction`: instructions and their states, and what the end of one means; `reason`: why one waits for another
- `device_state`: the engine's state of one device; `remote_needs`: memory that is reserved there once another node
  has answered; `session_queue`: one session's queue on a stream
- `launches`: what was launched at admission on a device, and how far the device has got
- `session`: one client's ids and tables, and a place in its program
- `account`, `charges`: a session's memory, and what counts for it
- `directory`: sessions, and names with what stands under them
- `texts`: a session's lines and spans, by number
- `linked`: a program, linked to devices and tensors; `unfolding`: a run in the middle of being admitted op by op
- `plan`: a resolved signature; `number`: the number among a call's operands, as an array
- `signature`: what an instruction is of, as plain values; `tally`: how many have ended, and how long they took
"""
