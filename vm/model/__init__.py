"""The engine's objects and their invariants; the rooms above make the decisions.

- `tensor`: tensors, storages, copies, and a tensor bound to a copy
- `instruction`: instructions, and the actions at their ends; `execution`: the part of an instruction that a stream's
  thread uses; `lifecycle`: an instruction's states; `reason`: the reasons why one instruction waits for another
- `device_state`: the engine's state of one device; `needs`: the memory that instructions will reserve there;
  `eviction`: the device's policy of eviction; `session_queue`: one session's queue on a stream
- `launches`: the launches at admission on a device, and how far the device has got
- `session`: one client's ids and tables, and a position in its program; `session_files`: its open files; `gpu_sharing`:
  the memory of GPUs that its client reads; `session_counts`: its errors, transfers and evictions
- `account`, `charges`: a session's memory, and the charges for storages and copies
- `directory`: sessions, and published objects by name
- `texts`: a session's lines and spans, by number
- `linked`: a program, linked to devices and tensors; `unfolding`: a run that is being admitted op by op
- `work_plan`: the facts known before an instruction runs; `plan`: the plan of a resolved signature;
  `number`: the number among a call's operands, as an array
- `signature`: an instruction's signature as plain values; `tally`: counts and times of ended instructions
"""
