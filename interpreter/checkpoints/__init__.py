"""Checkpoints on disk: a directory of generations, each whole or absent. Knows nothing of threads, devices or sessions.

A generation is what had a name at one moment: tensors, and routines by their texts. Its *manifest* says where the bytes
of each value lie, in *values files* that never change once they are there; so a generation writes what is new, and
points to the rest. docs/checkpoints.md has the layout and the guarantees, decision 0044 the reasons.

- `directory`: the directory of the one process that writes it: begin a generation, collect old ones, sweep
- `reader`: the directory of anybody else: generations, their records, the bytes of a record, orphans
- `writer`: a generation that is being written; `values_writer`: its values files; `repacking`: which values move there
- `record`: a value of a generation, a generation, and limits
- `manifest`: a generation as bytes and back; every byte of it is hostile until then
- `verification`: what of a generation is damaged, by name
- `layout`: the names of files, and the file that says what the directory is; `lock`: the one process that writes
"""
