"""Declarations of the messages about files of tensors and checkpoints (`messages`)."""

from __future__ import annotations

from typing import NamedTuple

from . import fields


class File(NamedTuple):
    """Open a file of tensors under a number. `place` is [descriptor of the client's, name]; an empty one forgets the
    number. Answered with what the file is recognised by: device, inode, size, time of the last write. `writes`: it is
    opened for WRITE, else for LOAD."""

    file: fields.FileNumber
    place: fields.Arguments
    request: fields.Request
    writes: fields.Flag = False


class Load(NamedTuple):
    """Define tensors that lie in an open file, one for each entry (`interpreter.files.on_wire`). `own`: they are no
    longer the file's once they have been read; `digest`: what is read again has to have the same digest."""

    file: fields.FileNumber
    outputs: fields.NewIds
    entries: fields.Arguments
    device: fields.Text
    own: fields.Flag
    digest: fields.Flag
    location: fields.LocationNumber


class Write(NamedTuple):
    """Write the values of tensors to a file, each from that offset on, packed."""

    file: fields.FileNumber
    ids: fields.UsedIds
    offsets: fields.Offsets
    location: fields.LocationNumber


class Flush(NamedTuple):
    """Answer once all that was written to the file is on the disk, or with the first error; the file is forgotten."""

    file: fields.FileNumber
    request: fields.Request


class Checkpoint(NamedTuple):
    """Write what is published to a directory of checkpoints: what stands under these names, all without. An empty
    directory is that of the durable names, and means these. The last `keep` generations are kept. Answered, once
    that is on the disk, with what was written."""

    directory: fields.Text
    names: fields.Names
    keep: fields.Count
    request: fields.Request
    location: fields.LocationNumber


class Restore(NamedTuple):
    """Publish what a generation of a checkpoint holds: the last one if the number is 0; these names of it, all without.
    `deep`: all values are read, and compared with their checksums. Answered with what was published, and what not."""

    directory: fields.Text
    generation: fields.Count
    names: fields.Names
    deep: fields.Flag
    request: fields.Request
