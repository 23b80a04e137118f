"""Files on the serial engine, which reads a tensor when it executes the LOAD message."""

from __future__ import annotations

import numpy as np

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.files.header import TensorEntry
from ...interpreter.files.on_wire import decode_entry, unusable_entry
from ...interpreter.files.open_file import OpenFile, OutputFile, unopened
from ...interpreter.files.values import read_array
from ...interpreter.wire.file_messages import File, Flush, Load, Write
from .state import SerialState
from .values import SerialSession, SerialTensor, Value, check_new, define, denial, refuse_cancelled, tensor_of


class SerialFiles:
    """The handlers of FILE, LOAD, WRITE and FLUSH messages."""

    def __init__(self, state: SerialState) -> None:
        self.state = state

    def file(self, session: SerialSession, message: File) -> None:
        """Open a file under a number, or close it."""
        number, reference, request, writes = message
        session.files.close(number)
        if not reference:
            session.reply(request, None, None)
            return
        try:
            file = session.files.open(reference, writes=writes)
        except TensordError as error:
            if writes:
                session.files.writing[number] = (unopened(error), Value(()))
            self.state.deny(session, error, request, 0, "save" if writes else "load")
            return
        if isinstance(file, OutputFile):
            session.files.writing[number] = (file, Value(()))
            session.reply(request, None, None)
            return
        session.files.loading[number] = file
        session.reply(request, list(file.identity), None)

    def load(self, session: SerialSession, message: Load) -> None:
        """Define tensors with values from a file."""
        number, ids, entries, device, _, _, location = message
        try:
            refuse_cancelled(session)
            check_new(session, ids)
            device = self.state.device_of(device)
            file = session.files.loading.get(number)
            if file is None:
                raise ProtocolError(f"file {number} is not open")
            if len(ids) != len(entries):
                raise ProtocolError(f"{len(ids)} ids for {len(entries)} tensors")
            decoded = [unusable_entry(one) or decode_entry(file, one) for one in entries]
        except TensordError as error:
            self.state.reject(session, error, ids, location, "load")
            return
        for id_, entry in zip(ids, decoded, strict=True):
            try:
                tensor = read(file, entry, device)
            except TensordError as error:
                self.state.reject(session, error, (id_,), location, "load")
            else:
                define(session, id_, tensor)

    def write(self, session: SerialSession, message: Write) -> None:
        """Write values to a file. After the first error, nothing more is written."""
        number, ids, offsets, location = message
        output = session.files.writing.get(number)
        try:
            refuse_cancelled(session)
            if output is None:
                raise ProtocolError(f"file {number} is not open for writing")
            values = [tensor_of(session, id_).value for id_ in ids]
            for value, offset in zip(values, offsets, strict=True):
                if value.array is None:
                    raise value.first.reraisable()  # without the traceback, which would keep the file open
                output[0].write(np.ascontiguousarray(value.array), offset)
        except TensordError as error:
            if output is None:
                self.state.deny(session, error, 0, location, "save")
            elif output[1].array is not None:
                output[1].array, output[1].errors = None, denial(session, error, location, "save").errors

    def flush(self, session: SerialSession, message: Flush) -> None:
        """Write everything to the disk, then answer."""
        output = session.files.writing.pop(message.file, None)
        if output is None:
            raise ProtocolError(f"file {message.file} is not open for writing")
        file, link = output
        if link.array is None:
            raise link.first.reraisable()
        file.flush()


def read(file: OpenFile, entry: TensorEntry | tuple[str, str], device: str) -> SerialTensor:
    """Read the tensor of an entry.

    FileError if the file has changed, MetadataError if tensord does not support the tensor.
    """
    if not isinstance(entry, TensorEntry):
        name, why = entry
        raise file.malformed(f"tensor {name!r} {why}")
    file.check()
    array = read_array(file, entry)
    file.check()
    return SerialTensor(Value(array), entry.meta, device)
