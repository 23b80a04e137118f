"""Admission of files: FILE opens a file, LOAD defines tensors from its entries, WRITE and FLUSH write values to it.

LOAD reads nothing. A loaded tensor has its value in the store, in a buffer that is a part of the file; the first use on
another device gets a transfer. A file stays open as long as a tensor's value lies in it.

WRITE reads each value by an instruction on the store's stream for files, after the transfer that brings the value to
the host, or to the store if the host is full. All writes to one file form a chain, as side effects do: the first error
stops the chain, and FLUSH, its last instruction, reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final
from weakref import WeakSet

from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from ...interpreter.files.describe import describe
from ...interpreter.files.header import FileHeader, TensorEntry
from ...interpreter.files.on_wire import MAX_ENTRIES, decode_entry, encode_entry, is_path, unusable_entry
from ...interpreter.files.open_file import OpenFile, OutputFile, unopened
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.descriptors import descriptor_limit
from ...interpreter.wire.file_messages import File, Flush, Load, Write
from ...streams.disk.stored import LoadedStretch, StoredArray, buffer_of, pieces
from ...streams.stream import StreamKind
from ..memory.making_room import drop_replica
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause, VmSession
from ..model.session_files import FileOpener
from ..model.signature import NOTHING, Maker
from ..model.tensor import Copy, Storage, VmTensor
from ..placement.loaded_files import LoadedFiles
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .exports import ReplyEnd
from .lookup import check_new, device_of, enter, note_maker, refuse_cancelled, tensor_of
from .quotas import check_tensors
from .rejection import Rejection, located

DESCRIPTOR_FRACTION: Final = 8  # files may take 1/8 of the process's descriptors
NO_HOST: Final = (
    "deflated and transposed tensors, tensors of the other byte order, and all tensors with digest=True are read to a "
    "cpu device first, and this machine has none"
)
ENTRIES_PER_SLICE: Final = 256  # entries in one slice of an answer
LOAD_MAKER: Final[Maker] = ("load", NOTHING)


class FileHandlers:
    """The handlers of FILE, LOAD, WRITE and FLUSH messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection
        self.opened: WeakSet[OpenFile | OutputFile] = WeakSet()  # of all sessions, closed ones included

    def file(self, session: VmSession, message: File) -> None:
        """Open a file under a number; without a reference, close the number's file."""
        number, reference, request, writes = message
        try:
            session.files.close(number)
            if not reference:
                session.reply(request, None, None)
                return
            if len(self.opened) >= descriptor_limit() // DESCRIPTOR_FRACTION:
                raise QuotaError(
                    f"1 file more: {len(self.opened)} files are open on this machine, which has no descriptors for "
                    "more; release tensors of files, load them with own=True, or raise the machine's limit of open "
                    "files (ulimit -n)"
                )
            if len(session.files.opened) >= session.limits.files:
                raise QuotaError(
                    f"1 file more: the session's tensors lie in {len(session.files.opened)} of {session.limits.files} "
                    "files; release some, load them with own=True, or raise the quota (files)"
                )
            if is_path(reference):
                self.look(session, number, reference, request)
                return
            file = session.files.open(reference, writes=writes)
        except TensordError as error:
            if writes:
                self.begin_output(session, number, unopened(error))
            self.rejection.deny(session, error, request, 0, "save" if writes else "load")
            return
        self.opened.add(file)
        if isinstance(file, OutputFile):
            session.files.opened.add(file)
            self.begin_output(session, number, file)
            session.reply(request, None, None)
            return
        self.enter(session, number, file)
        session.reply(request, list(file.identity), None)

    def enter(self, session: VmSession, number: int, file: OpenFile) -> None:
        """Let the session load tensors of the file under that number."""
        session.files.loading[number] = file
        session.files.opened.add(file)
        self.residency.files.open.add(file)

    def begin_output(self, session: VmSession, number: int, file: OutputFile) -> None:
        """Begin the chain of writes to a file. FLUSH reports the error of a file that could not be opened."""
        session.files.writing[number] = (file, self.residency.new_copy(self.chain_device(), 0, 1))

    def look(self, session: VmSession, number: int, reference: Sequence[Any], request: int) -> None:
        """Open a file by its path on the machine, and answer with its entries, since the client cannot read it."""
        store = self.residency.store
        if store is None:
            raise ProtocolError("this machine has no store, so it loads no files")
        instruction = self.scheduler.new_instruction(session, Opcode.ACCESS, "look", self.chain_device(), 0)
        instruction.stream = store.backend.copy_stream(StreamKind.READ)
        instruction.kernel = partial(opened, session.files.open, reference)
        instruction.on_end = OpenEnd(self, session, number, request)
        self.scheduler.admit(instruction)

    def chain_device(self) -> DeviceState:
        """The device for the chains of files."""
        return self.residency.host or next(iter(self.scheduler.devices.values()))

    def load(self, session: VmSession, message: Load) -> None:
        """Define tensors of a file, one for each entry; a damaged entry defines a poisoned tensor."""
        number, ids, entries, name, own, digest, location = message
        try:
            refuse_cancelled(session)
            check_new(session, ids)
            file, store = session.files.loading.get(number), self.residency.store
            if file is None:
                raise ProtocolError(f"file {number} is not open")
            if store is None:
                raise ProtocolError("this machine has no store, so it loads no files")
            if len(ids) != len(entries) or len(ids) > MAX_ENTRIES:
                raise ProtocolError(f"{len(ids)} ids for {len(entries)} tensors, a message has {MAX_ENTRIES} at most")
            device = device_of(self.scheduler.devices, name)
            refuse_lost(device)
            check_tensors(session, len(ids))
            decoded = [unusable_entry(one) or decode_entry(file, one) for one in entries]
            if self.residency.host is None and not all(is_readable_in_pieces(one, digest) for one in decoded):
                raise MetadataError(NO_HOST)
        except TensordError as error:
            self.rejection.reject(session, error, ids, location, "load")
            return
        for id_, entry in zip(ids, decoded, strict=True):
            if isinstance(entry, TensorEntry):
                stretch = LoadedStretch(file, entry, once=own, digest=digest)
                enter(session, id_, self.deferred(stretch, store, device, location))
            else:
                name, why = entry
                self.rejection.reject(session, file.malformed(f"tensor {name!r} {why}"), (id_,), location, "load")

    def write(self, session: VmSession, message: Write) -> None:
        """Write values to a file."""
        number, ids, offsets, location = message
        output = session.files.writing.get(number)
        try:
            refuse_cancelled(session)
            if output is None:
                raise ProtocolError(f"file {number} is not open for writing")
            if len(ids) != len(offsets) or len(ids) > MAX_ENTRIES:
                raise ProtocolError(
                    f"{len(offsets)} offsets for {len(ids)} tensors; a message has {MAX_ENTRIES} at most"
                )
            host, store = self.residency.host, self.residency.store
            if host is None or store is None:
                raise ProtocolError("values are written to files from a cpu device, and this machine has none")
            tensors = [tensor_of(session, id_) for id_ in ids]
            if session.moves:
                self.residency.begin_moves(session)
        except TensordError as error:
            self.refuse(session, error, output, location)
            return
        stream, bound = store.backend.copy_stream(StreamKind.SAVE), self.scheduler.bound
        file, link = output
        for tensor, offset in zip(tensors, offsets, strict=True):
            bound_before, copy_in_store = len(bound), tensor.storage.copies.get(store)
            try:
                source = self.residency.readable_by_files(tensor, Cause(session, location))
            except TensordError as error:  # no route, or over a quota
                self.refuse(session, error, output, location)
                return
            instruction = self.scheduler.new_instruction(session, Opcode.ACCESS, "save", host, location)
            instruction.inputs = (source,)
            instruction.reads, instruction.writes = (source.copy, link), (link,)
            await_metas(instruction)
            instruction.stream = stream
            instruction.kernel = partial(write_values, file, offset)
            instruction.on_end = SaveEnd(self.residency.files)
            self.scheduler.admit(instruction)
            del bound[bound_before:]  # after its write, the value may be evicted to make room for the next
            if source.copy.device is store and copy_in_store is None:
                drop_replica(source.copy, tensor.storage)

    def refuse(
        self, session: VmSession, error: TensordError, output: tuple[OutputFile, Copy] | None, location: int
    ) -> None:
        """Refuse a write: the error stops the file's chain, and FLUSH reports it. A file that is not open has none."""
        error = located(session, error, location, "save")
        if output is None:
            self.rejection.deny(session, error, 0, location, "save")
        else:
            self.rejection.poison_copy(session, output[1], error)

    def flush(self, session: VmSession, message: Flush) -> None:
        """Answer once all earlier writes to the file are on the disk, and close the file."""
        number, request = message
        output, store = session.files.writing.pop(number, None), self.residency.store
        if output is None or store is None:
            unknown = ProtocolError(f"file {number} is not open for writing")
            self.rejection.deny(session, unknown, request, 0, "save")
            return
        file, link = output
        instruction = self.scheduler.new_instruction(session, Opcode.ACCESS, "flush", self.chain_device(), 0)
        instruction.reads = (link,)
        instruction.stream = store.backend.copy_stream(StreamKind.SAVE)
        instruction.kernel = file.flush
        instruction.on_end = ReplyEnd(session, request)
        self.scheduler.admit(instruction)

    def deferred(self, stretch: LoadedStretch, store: DeviceState, home: DeviceState, location: int) -> VmTensor:
        """A tensor whose only copy lies in a file, and which uses none of the session's memory yet."""
        meta = stretch.entry.meta
        if meta is None:
            raise AssertionError("an entry from the wire has a meta")
        residency = self.residency
        residency.copies += 1
        copy = Copy(residency.copies, store, 0, 1)
        copy.buffer = buffer_of(stretch)
        storage = Storage(meta.nbytes, store, copy)
        storage.placed = home.alone
        note_maker(storage, LOAD_MAKER, location, self.scheduler.now)
        return VmTensor(meta, storage, home)


class OpenEnd(InstructionEnd):
    """Enters an opened file under the session's number, and answers with its entries."""

    __slots__ = ("files", "number", "request", "session")
    at_doom: ClassVar[bool] = True

    def __init__(self, files: FileHandlers, session: VmSession, number: int, request: int) -> None:
        self.files = files
        self.session = session
        self.number = number
        self.request = request

    def retired(self, done: Instruction) -> None:
        results, done.results = done.results, None
        if done.error is not None:
            self.session.reply(self.request, None, done.error)
            return
        file, header = results
        self.files.opened.add(file)
        self.files.enter(self.session, self.number, file)
        self.session.reply(self.request, header_answer(header), None)


class SaveEnd(InstructionEnd):
    """Checks the loaded files after a failed write, which may have changed one of them."""

    __slots__ = ("files",)

    def __init__(self, files: LoadedFiles) -> None:
        self.files = files

    def retired(self, done: Instruction) -> None:
        if done.error is not None:
            self.files.look()


def is_readable_in_pieces(entry: TensorEntry | tuple[str, str], digest: bool) -> bool:
    """Whether a transfer can read the entry in pieces, without reading all of it to the host first."""
    return not isinstance(entry, TensorEntry) or (entry.is_direct and not digest)


def opened(opener: FileOpener, reference: Sequence[Any]) -> tuple[OpenFile, FileHeader]:
    """The kernel of `look`: the opened file, and its header."""
    file = opener(reference, writes=False)
    assert isinstance(file, OpenFile)  # noqa: S101 - for the type checker: the file was opened for reading
    return file, describe(file, raw=reference[1])


def header_answer(header: FileHeader) -> Iterator[list[Any]]:
    """The answer of `look`, in slices: the file's identity, then its entries."""
    yield list(header.identity)
    rows: list[Any] = []
    for entry in header.entries.values():
        rows.append((entry.name, entry.error) if entry.meta is None else encode_entry(entry))
        if len(rows) == ENTRIES_PER_SLICE:
            yield rows
            rows = []
    yield rows


def write_values(file: OutputFile, offset: int, array: NDArray[Any] | StoredArray) -> None:
    """The kernel of a WRITE: write the array's elements, packed, at an offset."""
    for piece in pieces(array):
        file.write(piece, offset)
        offset += piece.nbytes
