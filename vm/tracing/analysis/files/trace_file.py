"""Trace files: one line of JSON per record, so that ordinary tools can cut, search and read them.

    line 1      {"format": "tensord-trace", "version": 6, "fields": [...], "devices": [...], "records": N, "dropped": D,
                 "before": B, "base_tick": T, "taken": ns}
    N lines     the named fields of `Record`, as an array; operands, edges and metas as arrays of such arrays
    then        {"used": {device: bytes}, "holdings": [...]}, the memory in use when the trace was taken
    then        {"runs": [...], "routines": R}
    R lines     the fields of `RoutineRecord`, as arrays of arrays
    last line   {"records": N, "sha256": "..."}, the checksum of every byte above this line

No byte of a file is trusted: `load` returns records of which every field has its type and range, or raises
ProtocolError with the file, the line and a remedy. `load` does not check whether the records are consistent; `verify`
does. So a loaded trace may have two instructions with the same id.

`trace_writer` writes a file while its records arrive. Older versions can be read:
- up to version 5, files do not name the session that caused an instruction planned by the machine;
- up to version 4, they have no routines;
- up to version 3, records have the fields up to `error`; lost records, and those from before a recording, are counted
  together; there is nothing about memory;
- up to version 2, a wait for some tensors is recorded as a Barrier;
- version 1 lacks `taken`, the time at which the trace was taken in the clock of the records, which is read as 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from io import SEEK_END
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

from .....interpreter.errors import ProtocolError
from .....interpreter.opcodes import Opcode
from .....interpreter.recordings.chunks import MAGIC
from .....interpreter.whole_file import write_whole
from ...record import Holding, Record, RoutineRecord, RunRecord
from ..recorded.records import Memory, Records
from .parts import ROUTINE, RUN
from .validators import Malformed, array, checked, fields_of, natural, one_of, record_of, several, text

FORMAT = "tensord-trace"
VERSION = 6
_WITHOUT_ROUTINES = 4
_WITHOUT_FIELDS = 3  # the highest version whose header does not name the fields
_WITHOUT_WAIT = 2  # the highest version that calls a wait over some tensors a Barrier
_WITHOUT_TAKEN = 1

# The longest line that is written, a barrier over a full ring, has a few megabytes. The limit bounds `load`'s buffer.
_LONGEST_LINE = 64 * 1024 * 1024
_FIELDS = fields_of(Record)
_NAMES = several(one_of(Record._fields))
_HOLDINGS = several(record_of(Holding))
_ALWAYS = tuple(name for name in Record._fields if name not in Record._field_defaults)

_T = TypeVar("_T")
_Records = TypeVar("_Records", bound=Records)


def load(path: str | Path, kind: type[_Records]) -> _Records:
    """Read a trace as an object of class `kind`.

    Raises OSError, or ProtocolError if the file is not a complete, valid trace.
    """
    with Path(path).open("rb") as file:
        if file.peek(len(MAGIC)).startswith(MAGIC):
            return _recorded(path, kind)
        return _TraceReader(file, str(path)).read(kind)


def _recorded(path: str | Path, kind: type[_Records]) -> _Records:
    """The trace in a recording with values."""
    from .....interpreter.recordings.reader import RecordingReader as Recording  # imports NumPy

    with Recording(path) as recording:
        if not recording.has_trace:
            raise ProtocolError(f"{path} is a recording without a trace: `tensord trace replay` runs it")
        return _TraceReader(recording.trace(), str(path)).read(kind)


def save(trace: Records, path: str | Path) -> None:
    """Write a trace to a file, and replace the old file. If writing fails, raises OSError and leaves the old file."""
    head = header(trace.devices, len(trace), trace)
    lines = [encode(value) for value in (head, *map(plain, trace.records), memory_line(trace.memory))]
    body = b"".join([*lines, routine_lines(trace.runs, trace.routines.values())])
    write_whole(path, body + encode(footer(len(trace), hashlib.sha256(body).hexdigest())))


def load_newest(path: str | Path, kind: type[_Records], largest: int) -> tuple[_Records, int]:
    """Read a trace and its number of records; of a file larger than `largest` bytes, only the records in the last
    `largest` bytes. Such a part has no routines, and the checksum of the file is not verified. Raises as `load`
    does."""
    with Path(path).open("rb") as file:
        reader = _TraceReader(file, str(path))
        if file.seek(0, SEEK_END) > largest:
            return reader.read_newest(kind, largest)
        file.seek(0)
        whole = reader.read(kind)
        return whole, len(whole)


class Header(NamedTuple):
    """The first line, without its format."""

    version: int
    fields: Sequence[str]
    devices: Sequence[str]
    records: int
    counts: dict[str, int]  # of `_COUNTS`


_COUNTS = ("dropped", "before", "base_tick", "taken")


def header(devices: Iterable[str], records: int, about: Records, lost: int = 0) -> object:
    """The first line of a file with so many records.

    `about` has the other counts; `lost`: more records that were dropped.
    """
    head = {"format": FORMAT, "version": VERSION, "fields": Record._fields, "devices": [*map(_writable, devices)]}
    counts = {name: getattr(about, name) for name in _COUNTS}
    return {**head, "records": records, **counts, "dropped": about.dropped + lost}


def plain(record: Record) -> list[object]:
    """The line of a record, as plain values."""
    return [_plain(field) for field in record]


def _plain(field: object) -> object:
    if isinstance(field, tuple) and field and isinstance(field[0], str):
        return [_writable(name) for name in field]
    return _writable(field) if isinstance(field, str) else field


def memory_line(memory: Memory) -> object:
    used = {_writable(device): nbytes for device, nbytes in memory.used.items()}
    return {"used": used, "holdings": [[_plain(field) for field in one] for one in memory.holdings]}


def routine_lines(runs: Iterable[RunRecord], routines: Iterable[RoutineRecord]) -> bytes:
    """The lines about runs and routines.

    A routine whose line would be too long to be read is written without its program.
    """
    lines = []
    for routine in routines:
        line = encode([_plain(field) for field in routine])
        if len(line) >= _LONGEST_LINE:
            line = encode([_plain(field) for field in routine._replace(text="", segments=())])
        lines.append(line)
    return encode({"runs": [[_plain(part) for part in run] for run in runs], "routines": len(lines)}) + b"".join(lines)


def footer(records: int, sha256: str) -> object:
    return {"records": records, "sha256": sha256}


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _writable(text: str) -> str:
    """The text with bytes that are not text escaped.

    A file name in a location may have some, and `load` would refuse them.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _TraceReader:
    """Reads one file, and counts its lines for error messages."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._line = 0
        self._digest = hashlib.sha256()

    def read(self, kind: type[_Records]) -> _Records:
        head = self._parse(_header)
        record = _reader_of(head)
        records = [self._parse(record) for _ in range(head.records)]
        memory = self._parse(_memory) if head.version > _WITHOUT_FIELDS else Memory()
        runs, count = self._parse(_runs) if head.version > _WITHOUT_ROUTINES else ((), 0)
        routines = [self._parse(partial(ROUTINE, "routine")) for _ in range(count)]
        expected = self._digest.hexdigest()
        footer_count, checksum = self._parse(_footer)
        if footer_count != head.records:
            self._fail(f"it counts {footer_count} records, the header {head.records}")
        if checksum != expected:
            self._fail("the checksum does not match the lines above: the file was changed or damaged")
        if self._file.read(1):
            self._fail("something follows the last line")
        return kind(records, devices=head.devices, memory=memory, routines=routines, runs=runs, **head.counts)

    def read_newest(self, kind: type[_Records], largest: int) -> tuple[_Records, int]:
        """The records in the last `largest` bytes, and the number of all records."""
        self._file.seek(0)
        head = self._parse(_header)
        if head.version <= _WITHOUT_FIELDS:
            self._fail(f"a part of a file can be read from version {_WITHOUT_FIELDS + 1} on")
        self._file.seek(-largest, SEEK_END)
        self._name, self._line = f"{self._name}, the last {largest} bytes", 0
        self._next()  # the rest of a line
        record, records = _reader_of(head), []
        while (line := self._next()).startswith(b"["):
            records.append(self._valid(line, record))
        if not records:
            self._fail("they do not contain a whole record")
        memory = self._valid(line, _memory)
        while (line := self._next()) and not line.startswith(b'{"records":'):
            pass  # runs and routines
        if self._valid(line, _footer)[0] != head.records or self._file.read(1):
            self._fail("it does not end as its first line says")
        counts = head.counts | {"base_tick": max((one.admitted for one in records), default=0)}
        counts["before"] += head.records - len(records)
        return kind(records, devices=head.devices, memory=memory, routines=(), runs=(), **counts), head.records

    def _parse(self, validate: Callable[[object], _T]) -> _T:
        return self._valid(self._next(), validate)

    def _valid(self, line: bytes, validate: Callable[[object], _T]) -> _T:
        try:
            return validate(json.loads(line))
        except Malformed as error:
            self._fail(str(error))
        except (ValueError, RecursionError):
            self._fail("not a line of JSON")

    def _next(self) -> bytes:
        self._line += 1
        line = self._file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            self._fail("the line is too long" if len(line) == _LONGEST_LINE else "the file ends here, it was cut short")
        self._digest.update(line)
        return line

    def _fail(self, what: str) -> NoReturn:
        raise ProtocolError(
            f"{self._name}, line {self._line}: {what}. Nothing was loaded; "
            f"record the trace again, or check that this is a trace saved by tensord"
        ) from None


def _header(value: object) -> Header:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise Malformed(f'not a trace: the first line does not say "format": "{FORMAT}"')
    version = natural("version", value.get("version"))
    if not _WITHOUT_TAKEN <= version <= VERSION:
        raise Malformed(f"trace version {version}, but this tensord reads versions {_WITHOUT_TAKEN} to {VERSION}")
    devices = [text("device", device) for device in array("devices", value.get("devices"))]
    named = version > _WITHOUT_FIELDS
    absent = set() if named else {"before"}
    absent |= {"taken"} if version == _WITHOUT_TAKEN else set()
    records = natural("records", value.get("records"))
    counts = {name: 0 if name in absent else natural(name, value.get(name)) for name in _COUNTS}
    return Header(version, _fields(value.get("fields")) if named else _ALWAYS, devices, records, counts)


def _fields(value: object) -> Sequence[str]:
    names = _NAMES("fields", value)
    if len(set(names)) < len(names) or not set(_ALWAYS) <= set(names):
        raise Malformed("its records do not have the fields of a trace")
    return names


def _memory(value: object) -> Memory:
    if not isinstance(value, dict) or not isinstance(value.get("used"), dict):
        raise Malformed("expected the memory in use, an object")
    used = {text("device", device): natural("used", nbytes) for device, nbytes in value["used"].items()}
    return Memory(used, _HOLDINGS("holdings", value.get("holdings")))


def _runs(value: object) -> tuple[tuple[RunRecord, ...], int]:
    if not isinstance(value, dict):
        raise Malformed("expected the runs of routines, an object")
    return several(RUN)("runs", value.get("runs")), natural("routines", value.get("routines"))


def _footer(value: object) -> tuple[int, str]:
    if not isinstance(value, dict):
        raise Malformed("expected the last line, an object with the count and the checksum")
    return natural("records", value.get("records")), text("sha256", value.get("sha256"))


def _reader_of(head: Header) -> Callable[[object], Record]:
    """A function that validates the line of a record."""
    validators = {name: _FIELDS[name] for name in head.fields}

    def record(value: object) -> Record:
        fields: dict[str, Any] = dict(zip(validators, checked("record", validators, value), strict=True))
        fields.setdefault("caused_by", fields["session"])
        return Record(**fields)

    def old_record(value: object) -> Record:
        found = record(value)
        return found._replace(opcode=Opcode.WAIT.value) if found.op == "wait" else found

    return old_record if head.version <= _WITHOUT_WAIT else record
