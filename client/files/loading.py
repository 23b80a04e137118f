"""Loading: from a file of tensors to handles. The bytes stay in the file until an op needs them.

The client opens the file and reads its header. So the file permissions of the client's user apply, and a damaged header
is an error at the user's line. The machine receives the header's entries and the client's file descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from ...interpreter.errors import (
    ConnectionLost,
    MetadataError,
    MetadataKeyError,
    MetadataTypeError,
    ProtocolError,
    TensordError,
)
from ...interpreter.files.describe import describe
from ...interpreter.files.header import FileHeader, TensorEntry
from ...interpreter.files.on_wire import MAX_ENTRIES, encode_entry, meta_of
from ...interpreter.files.open_file import OpenFile, open_path
from ...interpreter.files.tensor_file import Identity
from ...interpreter.layouts.placement import Placement
from ...interpreter.types.meta import Meta
from ...interpreter.wire.file_messages import File, Load
from ...interpreter.wire.messages import encode_message
from ...interpreter.wire.names import some_of
from ..calls.checks import Device, home_of
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import refuse_captured
from ..outbox.outbox import Outbox
from ..tensor.tensor import Tensor
from ..waiting.steps import LongWork, Steps


class LoadOptions(NamedTuple):
    """The arguments of `Session.load`."""

    path: str | os.PathLike[str]
    names: Iterable[str] | None
    device: Device | None
    own: bool
    raw: bool
    digest: bool


def loading(core: Core, wanted: LoadOptions) -> Steps[dict[str, Tensor]]:
    """The tensors of a file by name; see `Session.load`. With a placement, each tensor is the same on all its
    devices."""
    home = home_of(core, wanted.device)
    if not isinstance(home, Placement):
        return (yield from loading_on(core, wanted, home))
    found = yield from loading_on(core, wanted, home.names[0])
    return {name: tensor.to_device(home) for name, tensor in found.items()}


def loading_on(core: Core, wanted: LoadOptions, home: str) -> Steps[dict[str, Tensor]]:
    """The tensors of a file, at home on one device."""
    outbox = core.outbox
    refuse_captured(outbox, "no file can be loaded")
    location = outbox.locations.issued()
    if not outbox.transport.opens_files:
        return (yield from loading_there(core, wanted, home, location))
    try:
        file, header, entries = yield LongWork(partial(described_file, wanted.path, wanted.names, raw=wanted.raw))
    except TensordError as error:
        raise located(error) from None
    with outbox.numbered() as number, forgetting(outbox, number):
        yield from announcing(outbox, number, file, header.name)
        records = {
            entry.name: encode_entry(entry) if isinstance(entry.meta, Meta) else (entry.name, entry.error)
            for entry in entries
        }
        return define_tensors(core, Load(number, (), (), home, wanted.own, wanted.digest, location), records)


def described_file(
    path: str | os.PathLike[str], names: Iterable[str] | None, *, raw: bool
) -> tuple[OpenFile, FileHeader, list[TensorEntry]]:
    """A file on this process's host, its header, and the entries of those names."""
    try:
        file = open_path(path)
        header = describe(file, raw=raw)
        return file, header, chosen(header, names)
    except TypeError as error:
        raise MetadataTypeError(f"load: {error}") from None
    except ValueError as error:
        if isinstance(error, TensordError):
            raise
        raise MetadataError(f"load: {error}") from None


def loading_there(core: Core, wanted: LoadOptions, home: str, location: int) -> Steps[dict[str, Tensor]]:
    """The tensors of a file on the machine's host, which this process cannot open."""
    outbox = core.outbox
    if not outbox.transport.names_files:
        raise located(
            ProtocolError(
                f"load: {machine_of(core)} cannot open this process's files; load them where it runs, over ipc, or "
                "have its configuration name directories (files)"
            )
        )
    try:
        where, names = os.fsdecode(wanted.path), wanted.names
    except TypeError as error:
        raise located(MetadataTypeError(f"load: {error}")) from None
    with outbox.numbered() as number, forgetting(outbox, number):
        found = yield outbox.ask(lambda request, _: File(number, (where, wanted.raw), request), located=False)
        there = {record[0]: record for record in found[len(Identity._fields) :]}
        keys = there if names is None else (names,) if isinstance(names, str) else tuple(names)
        if missing := [name for name in keys if name not in there]:
            raise located(MetadataKeyError(f"{where}: has no tensor {missing[0]!r} (it has: {some_of(there)})"))
        records = {name: there[name] for name in keys}
        return define_tensors(core, Load(number, (), (), home, wanted.own, wanted.digest, location), records)


def chosen(header: FileHeader, names: Iterable[str] | None) -> list[TensorEntry]:
    """The entries of those names, or all."""
    if names is None:
        return list(header.entries.values())
    if isinstance(names, str):
        names = (names,)
    names = tuple(names)
    if strange := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"names must be strings, not {strange[0]!r}")
    return [header.entry(name) for name in dict.fromkeys(names)]


def announcing(outbox: Outbox, number: int, file: OpenFile, name: str) -> Steps[None]:
    """Make the machine open the file, and check that it is the file that was described."""
    reply = outbox.ask(lambda request, _: File(number, (file.fd, name), request), located=False)
    reply.when_done(partial(hold_open, file))  # keeps the descriptor open, even if the wait is interrupted
    there = Identity(*(yield reply))
    if there != file.identity:
        raise located(file.failed("has changed while it was loaded; load it again"))


def hold_open(_file: OpenFile) -> None:
    """Do nothing: the reference to the file is all that is needed."""


def define_tensors(core: Core, load: Load, records: Mapping[str, Any]) -> dict[str, Tensor]:
    """Define tensors as the message says, from entries in wire form."""
    outbox = core.outbox
    tensors: dict[str, Tensor] = {}
    with outbox.lock:
        rest = iter(records.items())
        while some := list(islice(rest, MAX_ENTRIES)):
            ids = [outbox.new_id() for _ in some]
            entries = [record for _, record in some]
            outbox.messages.append(encode_message(load._replace(outputs=ids, entries=entries)))
            for id_, (name, record) in zip(ids, some, strict=True):
                tensors[name] = Tensor(core, id_, meta_of(record), load.device)
    return tensors


def machine_of(core: Core) -> str:
    """The description of the machine in an error: its name, if it is one of several."""
    return "the machine" if core.cluster is None else core.node


@contextmanager
def forgetting(outbox: Outbox, number: int) -> Iterator[None]:
    """At the end of the block, make the machine forget the file's number; tensors keep their file."""
    try:
        yield
    finally:
        with suppress(ConnectionLost):
            with outbox.lock:
                outbox.messages.append(encode_message(File(number, (), 0)))
            outbox.flush(patient=False)  # one small message
