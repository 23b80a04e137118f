"""The vocabulary of both sides: of the thin client and of the machine. Knows nothing of devices or scheduling.

- `ops/`: the ops themselves, by family
- `own_ops/`: ops of users, made of plain functions
- `schema/`: what an op is: its definition, its infer function, its attributes
- `layouts/`: how a global tensor lies on its devices, and what ops make of that
- `programs/`: programs: ops in order, to be run as one message
- `files/`: files of tensors: what is in them, reading and writing them
- `checkpoints/`: generations of what has a name, on disk: writing, reading, collecting them
- `collectives/`: what several devices compute together, as steps between two of them
- `recordings/`: files with the messages of sessions and the values that came with them
- `wire/`: messages, frames, addresses
- `metrics/`: what the figures of a daemon are called where it is monitored
- `types/`: metas and dtypes
- `concurrency/`: how threads wait: leader and followers, the background thread, Ctrl-C
- `opcodes`: kinds of instructions; `errors`: what is raised; `version`: of the package
- `op_descriptions`: all ops, read without importing their kernels; `submodules`: what is found by its module;
  `entry_points`: by which packages from outside are found
- `build_info`: which form of the engine runs, plain Python or compiled; `compilation`: marks for the compiler
- `whole_file`: files that are there whole or not at all; `process_end`: what is done at the normal end of this process
"""
