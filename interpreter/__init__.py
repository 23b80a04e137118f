"""The vocabulary of both sides: the thin client and the machine. Knows nothing of devices or scheduling.

- `ops/`: the ops themselves, by family
- `own_ops/`: ops of users, made of plain functions
- `schema/`: the definition of an op, its infer function, its attributes
- `layouts/`: how a global tensor lies on its devices, and the rules of ops for layouts
- `programs/`: programs: ops in order, to be run as one message
- `files/`: files of tensors: their contents, reading and writing
- `checkpoints/`: generations of named values on disk: writing, reading, collecting
- `collectives/`: computations of several devices together, as steps between two of them
- `recordings/`: files with the messages of sessions and the values that came with them
- `wire/`: messages, frames, addresses
- `metrics/`: the names of a daemon's metrics
- `types/`: metas and dtypes
- `concurrency/`: how threads wait: leader and followers, the background thread, Ctrl-C
- `opcodes`: kinds of instructions; `errors`: the public errors; `version`: of the package
- `op_descriptions`: all ops, read without importing their kernels; `submodules`: finds definitions by their modules;
  `entry_points`: the groups by which other packages are found
- `build_info`: the form of the engine, plain Python or compiled; `compilation`: marks for the compiler
- `whole_file`: files that are complete or absent; `numpy_errors`: NumPy's warnings switched off at little cost
"""
