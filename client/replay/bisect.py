"""Finds the first op of a recording whose results differ between two sides.

The recording runs in lockstep until a result differs, which identifies the step. Then it runs again, on fresh machines,
up to that step. There the operands are read on both sides before the step, which shows whether they are equal. A run of
a routine is replaced by its single ops, and the first op that differs is named in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError
from ...interpreter.recordings.reader import RecordingReader
from ...interpreter.wire.fields import Role
from ...interpreter.wire.messages import Call, ToDevice, encode_message
from ...interpreter.wire.program_messages import Run
from ...interpreter.wire.roles import ids_of
from .differences import BOUND_OF_GPUS, difference, outcome
from .player import Player, ValueDifference
from .script import RecordedMessage, check_ops
from .sides import Side, Spec

Outcome = Any  # an array, or the type of the error in its place


class ComparedOperand(NamedTuple):
    """An operand of the op: its value on both sides, or the type of an error; a number has no device."""

    name: str
    device: str
    values: tuple[Outcome, ...]

    @property
    def equal(self) -> bool:
        """Return whether both sides have the same bits."""
        first, second = self.values
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
            return difference(first, second, 0.0) is None
        return type(first) is type(second) and not isinstance(first, np.ndarray) and bool(first == second)


class FirstDifference(NamedTuple):
    """The first difference. `attributes`: of the op; `inside`: a text about the routine that contains it; `results`: on
    both sides."""

    finding: ValueDifference
    device: str
    attributes: str
    operands: Sequence[ComparedOperand]
    results: tuple[Outcome, ...]
    inside: str = ""


class Examination:
    """Watches one step: keeps the operands of its messages, and stops at the first difference."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.found: tuple[Any, list[ComparedOperand]] | None = None
        self._message: Any = None
        self._operands: list[ComparedOperand] = []

    def before(self, step: RecordedMessage, message: Any) -> None:
        """Read the operands."""
        if self.found is None:
            self._message, self._operands = message, list(self._read(step.session, message))

    def after(self) -> None:
        """Compare the results of the messages sent so far; raise at a difference."""
        if self.found is None:
            self.player.settle()
            if self.player.findings:
                self.found = (self._message, self._operands)

    def _read(self, session: int, message: Any) -> Iterator[ComparedOperand]:
        player = self.player
        captured = player.captured(session, message)
        for position, id_ in enumerate((*used_by(player, session, message), *captured)):
            values = tuple([read(side, session, id_) for side in player.sides])
            yield ComparedOperand(f"operand {position}", player.homes.get((session, id_), "?"), values)
        for value in numbers_of(player, session, message):
            yield ComparedOperand("number", "", (value,) * len(player.sides))


def used_by(player: Player, session: int, message: Any) -> list[int]:
    """The tensors that a message reads or overwrites."""
    if type(message) is not Call:
        return ids_of(encode_message(message), {Role.USED}) if isinstance(message, Run | ToDevice) else []
    known = player.sessions[session].signatures[message.signature]
    tensors = [id_ for id_, scalar in zip(message.inputs, known.scalars, strict=True) if not scalar]
    return [*tensors, *(message.outputs if known.in_place else ())]


def numbers_of(player: Player, session: int, message: Any) -> list[Any]:
    if type(message) is Run:
        return list(message.numbers)
    if type(message) is not Call:
        return []
    known = player.sessions[session].signatures[message.signature]
    return [value for value, scalar in zip(message.inputs, known.scalars, strict=True) if scalar]


def read(side: Side, session: int, id_: int) -> NDArray[Any] | str:
    """The present value, or the type of its error."""
    reply = side.fetch(session, id_)
    side.flush(session)
    side.wait(session, reply)
    return outcome(reply)


@contextmanager
def opened_sides(reader: RecordingReader, specs: Sequence[Spec], given: Mapping[str, str]) -> Iterator[list[Side]]:
    """Fresh machines. `given`: a mapping from recorded devices to the first machine's."""
    with ExitStack() as stack:
        devices = list(reader.head["devices"])
        yield [stack.enter_context(Side(spec, devices, {} if n else given)) for n, spec in enumerate(specs)]


def bound_for(sides: Sequence[Side], within: float | None) -> float:
    """The tolerated difference: as given; otherwise 0, except for GPUs."""
    if within is not None:
        return within
    return BOUND_OF_GPUS if any(side.has_gpus for side in sides) else 0.0


def bisect(
    path: str | Path, specs: Sequence[Spec], given: Mapping[str, str], *, within: float | None = None, at: int = 0
) -> FirstDifference | None:
    """The first difference, or that of the step `at`; None if there is none. MetadataError for a recording with ops
    that this version lacks."""
    with RecordingReader(path) as reader:
        last = check_ops(reader)
        if at > last:
            raise MetadataError(f"{reader.path} has {last} steps; there is no step {at}")
        number = at or first_step(reader, specs, given, within)
        return examine(reader, specs, given, within, number) if number else None


def first_step(reader: RecordingReader, specs: Sequence[Spec], given: Mapping[str, str], within: float | None) -> int:
    """The first step with a difference; 0 if there is none."""
    with opened_sides(reader, specs, given) as sides:
        player = Player(reader, sides, within=bound_for(sides, within), most=1, recorded=False)
        player.play()
        return player.findings[0].step.number if player.findings else 0


def examine(
    reader: RecordingReader, specs: Sequence[Spec], given: Mapping[str, str], within: float | None, number: int
) -> FirstDifference | None:
    """The difference in a step, and the operands there."""
    found = examined(reader, specs, given, within, number, op_by_op=True)
    if found is not None:
        return found
    whole = examined(reader, specs, given, within, number, op_by_op=False)
    note = "op by op, no op of the routine differs: the difference comes from how its ops run together"
    return None if whole is None else whole._replace(inside=note)


def examined(
    reader: RecordingReader,
    specs: Sequence[Spec],
    given: Mapping[str, str],
    within: float | None,
    number: int,
    *,
    op_by_op: bool,
) -> FirstDifference | None:
    with opened_sides(reader, specs, given) as sides:
        player = Player(reader, sides, within=bound_for(sides, within), recorded=False)
        step = player.play(until=number)
        player.findings.clear()
        player.first = ()
        if step is None:
            return None
        player.watch = examination = Examination(player)
        player.unrolled_step = number if op_by_op else 0
        player.take(step)
        player.settle()
        return None if examination.found is None else first_difference(player, step, *examination.found)


def first_difference(
    player: Player, step: RecordedMessage, message: Any, operands: Sequence[ComparedOperand]
) -> FirstDifference:
    """The description of the difference."""
    finding = player.findings[0]
    known = player.sessions[step.session].signatures.get(message.signature) if type(message) is Call else None
    given = "" if known is None else ", ".join(f"{name}={value!r:.60}" for name, value in known.attributes)
    device = known.device if known is not None else player.homes.get((step.session, finding.id), "?")
    inside = ""
    if type(step.message) is Run and type(message) is not Run:
        whole = player.routines[step.session].routines.get(player.sessions[step.session].ids.of(step.message.routine))
        inside = f"in a run of the routine {getattr(whole, 'name', '') or step.message.routine}"
    return FirstDifference(finding, device, given, operands, player.first, inside)
