"""A run of a routine as single ops, to find the op that differs.

The machine's own code defines the meaning of a run (`vm.routines.op_by_op.unfolding`). Inner values get the ids between
the newest id before the run and the run's outputs. Runs with control flow depend on values, and are not unrolled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from ...interpreter.programs.program import Program
from ...interpreter.wire.forms import decode_message
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.message_kinds import EFFECT
from ...interpreter.wire.messages import Call, Signature, ToDevice
from ...interpreter.wire.messages import Message as Array
from ...interpreter.wire.metas import encode_meta
from ...interpreter.wire.program_messages import Link, ProgramPart, Run
from ...vm.model.linked import SessionProgram
from ...vm.routines.op_by_op.run import RunIds
from ...vm.routines.op_by_op.unfolding import Unfolder, metas_of
from ...vm.routines.programs import add_part, link

LAST_SIGNATURE: Final = (1 << 16) - 1  # signatures of single ops have numbers downwards from this one


class ReplayedRoutines:
    """The programs and routines of one session, by the ids of the replay."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.limits = Limits()
        self.newest = 0
        self.steps = 0
        self.programs: dict[int, Any] = {}
        self.routines: dict[int, Any] = {}
        self._devices = devices

    def keep(self, message: object) -> None:
        """Note a part of a program, or a link. An invalid message is ignored: the machines that replay it refuse it."""
        self.newest = 0  # any id is new here
        with suppress(Exception):
            if isinstance(message, ProgramPart):
                add_part(self, message, None)
            elif isinstance(message, Link):
                link(self, message, self._devices)

    def homes(self, routine: int) -> list[str]:
        """The devices of a routine's results."""
        found = self.routines.get(routine)
        return [home for _, home in found.results] if isinstance(found, SessionProgram) else []

    def written(self, run: Run) -> list[int]:
        """The ids of the arguments that a run overwrites; empty if the routine's program is not known."""
        found = self.routines.get(run.routine)
        written = found.program.written if isinstance(found, SessionProgram) else ()
        return [run.inputs[value] for value in written if value < len(run.inputs)]

    def unrolled(self, run: Run, newest: int) -> Iterator[Any] | None:
        """The messages of a run's ops; None for a run with control flow, or if the routine's program is not known."""
        routine = self.routines.get(run.routine)
        if (
            not isinstance(routine, SessionProgram)
            or routine.program.is_data_dependent
            or not isinstance(routine.source, Program)
        ):
            return None
        return UnrolledRun(routine, run, newest).messages()


class UnrolledRun:
    """A run that is unrolled: the `RunEngine` of unfolding, as far as runs without control flow need it."""

    iterations = 0  # no loops

    def __init__(self, routine: SessionProgram, run: Run, newest: int) -> None:
        self.routine = routine
        self.message = run
        self.newest = newest
        self._signed: list[Signature] = []

    def messages(self) -> Iterator[Any]:
        routine, run = self.routine, self.message
        unfolder: Any = Unfolder(self, run.effects, run.location, self.newest)  # type: ignore[arg-type] # no blocks: nothing else is asked
        ids = RunIds(routine.program, (*run.inputs, *routine.captured), self.newest, unfolder.new)
        routine.templates = [None] * len(routine.templates)  # so that each signature is sent again
        for array in unfolder.program(routine, ids, run.numbers):
            yield from self._signed
            self._signed.clear()
            if array[0] != EFFECT:
                yield decode_message(plain(array))
        homes = [home for _, home in routine.results]
        for variable, output, home in zip(routine.program.returned, run.outputs, homes, strict=True):
            yield ToDevice(ids[variable], output, home, run.location)

    def prepare(self, _routine: SessionProgram) -> Iterator[None]:
        return iter(())

    def pieces(self, routine: SessionProgram) -> Sequence[range]:
        """All steps, as one piece. `admit` refuses it, so the steps run one by one."""
        return (range(len(routine.program.steps)),)

    def admit(self, *_: object) -> bool:
        return False

    def sign(self, routine: SessionProgram, position: int, number: int) -> int:
        """Note the signature of a step's op; returns its number."""
        step = routine.program.steps[position]
        metas, targets = metas_of(routine.program, position)
        number = number or LAST_SIGNATURE - position
        wanted = None if targets is None else [encode_meta(meta) for meta in targets]
        device = routine.devices[step.device]
        given = [encode_meta(meta) for meta in metas]
        self._signed.append(Signature(number, step.op, step.attributes, given, device, wanted))
        return number


def plain(array: Array) -> Array:
    """The message; a call without its releases, so that its operands can still be read after it."""
    copied = list(array)
    if len(copied) == len(Call._fields) + 1 and copied[0] == 0:
        copied[1 + Call._fields.index("released")] = 0
    return copied
