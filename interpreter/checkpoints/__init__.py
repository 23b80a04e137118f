"""Checkpoints on disk: a directory of generations, each complete or absent. Knows nothing of threads, devices or
sessions.

A generation holds everything that had a name at one moment: tensors, and routines as texts. Its *manifest* says where
the bytes of each value lie, in *values files* that never change; so a generation writes new values, and refers to
earlier files for the rest. docs/checkpoints.md has the layout and the guarantees, decision 0044 the reasons.

- `directory`: the directory of the one process that writes it: begins generations, collects old ones, removes orphans
- `reader`: the directory of any other process: generations, their records, the bytes of a record, orphans
- `writer`: a generation that is being written; `values_writer`: its values files; `repacking`: chooses the values that
  move there
- `record`: a value of a generation, a generation, and limits
- `manifest`: a generation as bytes and back; every byte of a file is untrusted
- `verification`: finds damaged values of a generation, by name
- `layout`: the names of files, and the file that identifies the directory; `lock`: the lock of the process that writes
"""
