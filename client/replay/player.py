"""Runs a recording on one side, or on two in lockstep, and compares.

On two sides, every result of every op is read after the op, on both, and compared; equal results are dropped. On one
side only recorded fetches are read, and compared with the recorded values. Both happen in groups: reads are requested
in program order, and waited for when they, or their bytes, are many.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from numpy.typing import NDArray

from ...interpreter.recordings.reader import Answered, RecordingReader
from ...interpreter.wire.messages import (
    Call,
    Fetch,
    Location,
    NamedMessage,
    Release,
    Signature,
    Span,
    ToDevice,
    Upload,
    encode_message,
)
from ...interpreter.wire.node_messages import Collective
from ...interpreter.wire.program_messages import Link, ProgramPart, Run
from ...interpreter.wire.roles import OUTPUT_ROLES, ids_of
from ..transport.replies import Reply
from .differences import Difference, outcome, outcome_difference
from .missing import MissingValues
from .script import Begin, End, MissingTensor, RecordedMessage, steps
from .sides import Side
from .signatures import ReplayLocations, recorded_op
from .translation import ReplaySession, with_ids
from .unrolled import ReplayedRoutines

READS_PER_GROUP: Final = 128  # reads for which the player waits together
BYTES_PER_GROUP: Final = 1 << 26  # bytes of their values
CANCELLED: Final = "CancelledError"
RECORDED: Final = "what was recorded"


class Check(NamedTuple):
    """A value to compare: a result of a message, or the answer to a fetch."""

    step: RecordedMessage
    message: Any
    id: int
    replies: Sequence[Reply]
    answer: Answered | None = None


class ValueDifference(NamedTuple):
    """Two values that differ. `message`: with the ids of the replay; `op`: the op of which the value is a result;
    `against`: the origin of the second value."""

    step: RecordedMessage
    message: Any
    id: int
    op: str
    line: str
    span: str
    against: str
    difference: Difference


class MessageWatch(Protocol):
    """Examines each message with results, before it is sent and after its results were compared."""

    def before(self, step: RecordedMessage, message: Any) -> None: ...

    def after(self) -> None: ...


class Player:
    """Plays a recording. `compared`: results of ops that were compared; `fetched`: values that were compared with
    recorded ones, and `unknown`: those that were not; `findings`: the differences, up to `most`.
    `unrolled_step`: the step of a run that is to be replaced by single ops."""

    def __init__(
        self,
        reader: RecordingReader,
        sides: Sequence[Side],
        *,
        within: float = 0.0,
        paced: bool = False,
        most: int = 1000,
        recorded: bool = True,
    ) -> None:
        self.reader = reader
        self.sides = sides
        self.within = within
        self.paced = paced
        self.most = most
        self.recorded = recorded
        self.unrolled_step = 0
        self.steps = self.compared = self.fetched = self.unknown = self.differing = 0
        self.findings: list[ValueDifference] = []
        self.first: tuple[Any, ...] = ()  # both values of the first difference
        self.sessions: dict[int, ReplaySession] = {}
        self.locations: dict[int, ReplayLocations] = {}
        self.routines: dict[int, ReplayedRoutines] = {}
        self.homes: dict[tuple[int, int], str] = {}  # the recorded devices of tensors
        self.watch: MessageWatch | None = None
        self.missing = MissingValues(reader)
        self._checks: list[Check] = []
        self._bytes = 0
        self._began: tuple[float, int] | None = None

    def play(self, until: int = 0) -> RecordedMessage | None:
        """Play all steps, or those before step `until`, which is returned. ConnectionLost if a machine ends
        meanwhile."""
        for step in steps(self.reader):
            if until and step.number == until:
                self.settle()
                return step
            self.take(step)
            if len(self.findings) >= self.most:
                return None
        self.settle()
        return None

    def take(self, step: RecordedMessage) -> None:
        """Play one step."""
        self.steps = step.number
        message = step.message
        if self.paced:
            self._pace(step)
        if type(message) is Begin:
            self._begin(step.session, message)
        elif type(message) is End:
            self.settle()
            for side in self.sides:
                side.end(step.session)
        elif isinstance(message, Location | Span):
            self.locations[step.session].keep(message)
            self._send(step, message)
        elif type(message) is MissingTensor:
            self.missing.add(step.session, self.sessions[step.session].ids.new(message.id))
        elif type(message) is Fetch:
            self._fetch(step, message)
        else:
            self._act(step, message)

    def _begin(self, number: int, begin: Begin) -> None:
        self.sessions[number] = ReplaySession(begin.name, begin.newest)
        self.locations[number] = ReplayLocations()
        self.routines[number] = ReplayedRoutines(list(self.reader.head["devices"]))
        for side in self.sides:
            side.open(number, begin.name, strict=begin.strict)

    def _pace(self, step: RecordedMessage) -> None:
        """Sleep until the recorded time of the step."""
        if not step.time:
            return
        began, first = self._began = self._began or (time.monotonic(), step.time)
        rest = began + (step.time - first) / 1e9 - time.monotonic()
        if rest > 0:
            for side in self.sides:
                side.flush_all()
            time.sleep(rest)

    # -- messages --------------------------------------------------------------------------------------------------

    def _act(self, step: RecordedMessage, message: Any) -> None:
        session = self.sessions[step.session]
        if type(message) is Signature:
            session.signatures[message.number] = recorded_op(message)
            for side in self.sides:
                side.check_op(message.op)
        ready = with_ids(session, message)
        if ready is None:
            return
        if isinstance(ready, ProgramPart | Link):
            self.routines[step.session].keep(ready)
        single_ops = None
        if isinstance(ready, Run) and step.number == self.unrolled_step:
            single_ops = self.routines[step.session].unrolled(ready, session.ids.last)
        for translated in single_ops if single_ops is not None else (ready,):
            if type(translated) is Signature:
                session.signatures[translated.number] = recorded_op(translated)
            self.act(step, translated)

    def act(self, step: RecordedMessage, message: Any) -> None:
        """Send a message with the ids of the replay, and request its results."""
        self.missing.note(step, message, self.captured(step.session, message))
        self._note_homes(step.session, message)
        if self.watch is not None:
            self.watch.before(step, message)
        self._do(step, message)
        if self.watch is not None:
            self.watch.after()

    def _do(self, step: RecordedMessage, message: Any) -> None:
        if type(message) is Upload:
            self._upload(step, message)
        elif type(message) is Call and len(self.sides) > 1 and message.released:
            self._send(step, message._replace(released=0))
            self._request_results(step, message)
            self._send(step, Release(released_by(message, self.sessions[step.session])))
        else:
            self._send(step, message)
            self._request_results(step, message)

    def _send(self, step: RecordedMessage, message: NamedMessage) -> None:
        for side in self.sides:
            side.send(step.session, message)

    def _upload(self, step: RecordedMessage, message: Upload) -> None:
        for side in self.sides:
            value = self.missing.value(step.value, message)
            side.send(step.session, message._replace(payload=value.copy() if value.base is not None else value))

    def _request_results(self, step: RecordedMessage, message: Any) -> None:
        """Request the results from both sides."""
        if len(self.sides) < 2 or not isinstance(message, Call | Run | ToDevice | Collective):
            return
        for id_ in self._results_of(step.session, message):
            replies = [side.fetch(step.session, id_) for side in self.sides]
            self._check(Check(step, message, id_, replies), self._nbytes(step, message))

    def _results_of(self, session: int, message: Any) -> Iterator[int]:
        """The ids of a message's results, and of the tensors that it overwrites, as far as known."""
        found = ids_of(encode_message(message), OUTPUT_ROLES)
        if type(message) is Run:
            found += (*self.captured(session, message), *self.routines[session].written(message))
        yield from dict.fromkeys(found)

    def _fetch(self, step: RecordedMessage, message: Fetch) -> None:
        if not self.recorded:
            return
        id_ = self.sessions[step.session].ids.of(message.id)
        known_answer = step.answer is not None and not self.missing.affects(step.session, id_)
        replies = [self.sides[0].fetch(step.session, id_)]
        if not known_answer:
            self.unknown += 1
        self._check(Check(step, message, id_, replies, step.answer if known_answer else None), None)

    def _nbytes(self, step: RecordedMessage, message: Any) -> int | None:
        found = self.sessions[step.session].signatures.get(message.signature) if type(message) is Call else None
        return None if found is None else found.nbytes

    def _note_homes(self, session: int, message: Any) -> None:
        """Note the devices of results."""
        if type(message) is Release:
            for id_ in message.ids:
                self.homes.pop((session, id_), None)
        elif isinstance(message, Upload | ToDevice):
            self.homes[session, message.output] = message.device
        elif type(message) is Call and not self.sessions[session].signatures[message.signature].in_place:
            device = self.sessions[session].signatures[message.signature].device
            self.homes.update(((session, id_), device) for id_ in message.outputs)
        elif type(message) is Run:
            devices = self.routines[session].homes(message.routine)
            self.homes.update(((session, id_), home) for id_, home in zip(message.outputs, devices, strict=False))

    # -- comparing -------------------------------------------------------------------------------------------------

    def _check(self, check: Check, nbytes: int | None) -> None:
        self._checks.append(check)
        self._bytes += BYTES_PER_GROUP if nbytes is None else nbytes * len(check.replies)
        if len(self._checks) >= READS_PER_GROUP or self._bytes >= BYTES_PER_GROUP:
            self.settle()

    def settle(self) -> None:
        """Wait for the requested values, and compare them."""
        checks, self._checks, self._bytes = self._checks, [], 0
        for side in self.sides:
            side.flush_all()
        for check in checks:
            for side, reply in zip(self.sides, check.replies, strict=False):
                side.wait(check.step.session, reply)
            self._compare(check)

    def _compare(self, check: Check) -> None:
        first = outcome(check.replies[0])
        if len(check.replies) > 1:
            second = outcome(check.replies[1])
            self.compared += 1
            if self._keep(check, self.sides[1].spec.text, outcome_difference(first, second, self.within)):
                self.first = self.first or (first, second)
        if check.answer is not None:
            recorded = self._recorded(check.answer)
            if recorded is None:
                self.unknown += 1
                return
            self.fetched += 1
            self._keep(check, RECORDED, outcome_difference(first, recorded, self.within))

    def _recorded(self, answer: Answered) -> NDArray[Any] | str | None:
        """The recorded outcome: a value or an error; None if there is nothing to compare."""
        if answer.error is not None:
            return None if answer.error[0] == CANCELLED else str(answer.error[0])
        return self.reader.value(answer.value)

    def _keep(self, check: Check, against: str, difference: Difference | None) -> bool:
        """Keep a difference, if there is one."""
        if difference is None:
            return False
        self.differing += 1
        if len(self.findings) < self.most:
            locations = self.locations[check.step.session]
            location = getattr(check.message, "location", 0)
            op = self.name_of(check.step.session, check.message)
            line, span = locations.line(location), locations.span(location)
            self.findings.append(
                ValueDifference(check.step, check.message, check.id, op, line, span, against, difference)
            )
        return True

    def captured(self, session: int, message: Any) -> Sequence[int]:
        """The tensors that a run's routine captures."""
        return self.sessions[session].captured.get(message.routine, ()) if type(message) is Run else ()

    def name_of(self, session: int, message: Any) -> str:
        """The name of an op, or a description of another message."""
        if type(message) is Call:
            return self.sessions[session].signatures[message.signature].op
        if type(message) is Run:
            routine = self.routines[session].routines.get(message.routine)
            return f"the routine {getattr(routine, 'name', '') or message.routine}"
        return {ToDevice: "to_device", Fetch: "fetch"}.get(type(message)) or str(getattr(message, "kind", "upload"))


def released_by(message: Call, session: ReplaySession) -> tuple[int, ...]:
    """The ids that a call releases."""
    scalars = session.signatures[message.signature].scalars
    operands = (*message.inputs, *message.outputs)
    ids = [
        id_
        for position, id_ in enumerate(operands)
        if message.released >> position & 1 and not is_scalar(scalars, position)
    ]
    return tuple(dict.fromkeys(ids))


def is_scalar(scalars: Sequence[bool], position: int) -> bool:
    return position < len(scalars) and scalars[position]
