"""Declarations of the messages about files of tensors and checkpoints (`messages`)."""

from __future__ import annotations

from typing import NamedTuple

from . import fields


class File(NamedTuple):
    """Open a file of tensors under a number.

    `reference`: [descriptor of the client's, name], or [path, raw] for a file on the daemon's host; an empty one
    forgets the number. `writes`: the file is opened for WRITE, otherwise for LOAD. Answered with the identity of the
    file (device, inode, size, time of the last write), and for a path also with its entries.
    """

    file: fields.FileNumber
    reference: fields.Arguments
    request: fields.Request
    writes: fields.Flag = False


class Load(NamedTuple):
    """Define a tensor for each entry of an open file (`interpreter.files.on_wire`), without reading any.

    `own`: the tensors no longer depend on the file once they have been read. `digest`: bytes that are read again must
    have the same digest.
    """

    file: fields.FileNumber
    outputs: fields.NewIds
    entries: fields.Arguments
    device: fields.Text
    own: fields.Flag
    digest: fields.Flag
    location: fields.LocationNumber


class Write(NamedTuple):
    """Write the values of tensors to a file, packed, each at its offset."""

    file: fields.FileNumber
    ids: fields.UsedIds
    offsets: fields.Offsets
    location: fields.LocationNumber


class Flush(NamedTuple):
    """Answer once all written values are on the disk, or with the first error; forget the file."""

    file: fields.FileNumber
    request: fields.Request


class Checkpoint(NamedTuple):
    """Write the values of published names to a directory of checkpoints, as a new generation.

    `names`: empty for all names. `directory`: empty for the durable names and their directory. `keep`: the number of
    generations that are not removed; 0 removes none. Answered once the generation is on the disk, with a report.
    """

    directory: fields.Text
    names: fields.Names
    keep: fields.Count
    request: fields.Request
    location: fields.LocationNumber


class Restore(NamedTuple):
    """Publish names of a generation of a checkpoint.

    `generation`: 0 for the last one. `names`: empty for all names of the generation. `deep`: all values are read and
    compared with their checksums. Answered with the published names, and with those that failed.
    """

    directory: fields.Text
    generation: fields.Count
    names: fields.Names
    deep: fields.Flag
    request: fields.Request
