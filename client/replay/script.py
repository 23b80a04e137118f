"""A recording as steps, in the order in which the machine received them.

Everything that concerns the outside world is left out: names, files, checkpoints, side effects, hints. A tensor from
elsewhere (looked up, loaded, received, the result of a host call) becomes an upload. Groups are split into single
messages, which changes no value within one session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ...interpreter.errors import MetadataError, ProtocolError, TensordError
from ...interpreter.recordings.entries import BEGIN, END, IMPORT, MESSAGE
from ...interpreter.recordings.messages import messages_in
from ...interpreter.recordings.reader import Answered, RecordingReader
from ...interpreter.schema.opdef import find
from ...interpreter.wire.messages import Call, Chain, Fetch, Location, Release, Signature, Span, ToDevice, Upload
from ...interpreter.wire.node_messages import Collective
from ...interpreter.wire.program_messages import Link, ProgramPart, Run

PLAYED_MESSAGES: Final = frozenset(
    {Call, Chain, Collective, Fetch, Link, Location, ProgramPart, Release, Run, Signature, Span, ToDevice, Upload}
)

MAX_SESSIONS: Final = 1024  # open sessions at a time


class Begin(NamedTuple):
    """The beginning of a session, which has ids up to the newest one."""

    name: str
    strict: bool
    newest: int


class End(NamedTuple):
    """The end of a session."""


class MissingTensor(NamedTuple):
    """A tensor from elsewhere that is unknown, or had failed."""

    id: int


class RecordedMessage(NamedTuple):
    """One message of a session. `number` counts the steps from 1. `time`: when it was received, in ns. `value`: of an
    upload. `answer`: the recorded answer to a fetch."""

    number: int
    session: int
    time: int
    message: Any
    value: int = 0
    answer: Answered | None = None


def steps(reader: RecordingReader) -> Iterator[RecordedMessage]:
    """The steps of a recording."""
    number = 0
    begun: set[int] = set()
    for session, time, message, value, answer in _all(reader):
        if (session in begun) is (type(message) is Begin):
            continue  # the session has not begun, or begins twice
        if type(message) is Begin:
            begun.add(session)
            if len(begun) > MAX_SESSIONS:
                raise ProtocolError(f"{reader.path}: more than {MAX_SESSIONS} sessions at a time")
        elif type(message) is End:
            begun.discard(session)
        number += 1
        yield RecordedMessage(number, session, time, message, value, answer)


def _all(reader: RecordingReader) -> Iterator[tuple[int, int, Any, int, Answered | None]]:
    message: Any
    for entry in reader.entries():
        kind, session = entry[0], entry[1] if len(entry) > 1 else 0
        if kind == BEGIN:
            yield session, 0, Begin(*entry[2:]), 0, None
        elif kind == END:
            yield session, 0, End(), 0, None
        elif kind == IMPORT:
            message, value = _import(reader, entry)
            yield session, entry[2], message, value, None
        elif kind == MESSAGE:
            values = iter(entry[4])
            for message in messages_in(entry[3]):
                value = next(values, 0) if type(message) is Upload else 0
                if type(message) in PLAYED_MESSAGES:
                    asked = reader.answers.get((session, message.request)) if type(message) is Fetch else None
                    yield session, entry[2], message, value, asked


def _import(reader: RecordingReader, entry: Any) -> tuple[Upload | MissingTensor, int]:
    """The upload of a value from elsewhere, and the value."""
    _, session, _, id_, device, request = entry
    answer = reader.answers.get((session, request))
    where = None if answer is None else reader.values.get(answer.value)
    if answer is None or where is None:
        return MissingTensor(id_), 0
    return Upload(id_, where.shape, where.dtype, device, None, 0), answer.value


def check_ops(reader: RecordingReader) -> int:
    """The number of steps. MetadataError, with name and line, if this version lacks an op of the recording."""
    lines: dict[tuple[int, int], str] = {}
    missing: dict[str, str] = {}
    last = 0
    for step in steps(reader):
        last = step.number
        message = step.message
        if type(message) is Location:
            lines[step.session, message.number] = message.text
        for op in ops_of(message):
            try:
                find(op)
            except TensordError:
                missing.setdefault(op, next(reversed(lines.values()), ""))
    if missing:
        named = ", ".join(f"{op!r:.60} (near {line})" if line else f"{op!r:.60}" for op, line in missing.items())
        raise MetadataError(
            f"{reader.path}: this version of tensord has no op {named}: the recording was made by tensord "
            f"{reader.head.get('tensord', '?')!s:.40}; ops of packages come with --plugins NAME"
        )
    return last


def ops_of(message: Any) -> Iterator[str]:
    """The ops that a message names."""
    if type(message) is Signature:
        yield message.op
