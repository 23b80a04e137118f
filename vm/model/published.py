"""What stands under a name: a tensor; or a routine, with the tensors that it captures. For both engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from ...interpreter.programs.program import Program

Held = TypeVar("Held")


class PublishedRoutine:
    """A routine as other sessions get it. Nothing of it belongs to its publisher, which may have ended.

    `lines`: the texts of its program's lines, by their numbers; `convention`: how it is called, as it travels, or None;
    `weight`: what it counts for in the quota of steps.
    """

    __slots__ = ("convention", "devices", "lines", "program", "weight")

    def __init__(self, program: Program, devices: tuple[str, ...], lines: Mapping[Any, str], convention: Any) -> None:
        self.program = program
        self.devices = devices
        self.lines = lines
        self.convention = convention
        self.weight = program.weight


class Published(Generic[Held]):
    """What stands under a name, and keeps its tensors alive. `routine`: None for a name of a tensor."""

    __slots__ = ("routine", "tensors")

    def __init__(self, tensors: Sequence[Held], routine: PublishedRoutine | None = None) -> None:
        self.tensors = tuple(tensors)
        self.routine = routine

    @property
    def weight(self) -> int:
        """What it counts for in the publisher's quota of steps."""
        return 0 if self.routine is None else self.routine.weight
