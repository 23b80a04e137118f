"""The vocabulary of both sides: of the thin client and of the machine. Knows nothing of devices or scheduling.

- `ops/`: the ops themselves, by family
- `schema/`: what an op is: its definition, its infer function, its attributes
- `wire/`: messages, frames, addresses
- `types/`: metas and dtypes
- `opcodes`: kinds of instructions; `errors`: what is raised; `interrupts`: Ctrl-C while the main thread drives or waits
"""
