"""The results of a program on the serial engine."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from .execution import execute
from .oracle import Oracle
from .snapshots import Wanted, wanted_of
from .steps import Encoder, Program, Step, World


class Expected:
    """The oracle, with the requests to it and its answers. `failing`: the calls that fail, as far as they are known."""

    def __init__(self, world: World, failing: Container[tuple[int, int]]) -> None:
        missing = dict(world.missing)
        devices = {d: [missing[d]] if d in missing else [] for d in world.devices}
        self.engine = Oracle(devices, lambda *call: RuntimeError("injected") if call in failing else None)
        self.replies: list[dict[int, tuple[Any, Any]]] = []
        self.sessions = [self.open() for _ in range(world.sessions)]
        self.encoder = Encoder()
        self.checkpoints: dict[tuple[int, int], Wanted] = {}  # by session and request

    def open(self) -> Any:
        mine: dict[int, tuple[Any, Any]] = {}
        self.replies.append(mine)
        return self.engine.open_session(lambda request, value, error: mine.__setitem__(request, (whole(value), error)))

    def execute(self, step: Step, *, unfolds: bool = False) -> None:
        """Execute one more step. `unfolds`: whether the engine unfolds runs itself."""
        if step.kind == "CHECKPOINT":
            self.checkpoints[step.session, step.number] = wanted_of(self.engine.names)
            return
        execute(self.engine, self.sessions, self.encoder, step, unfolds=unfolds)


def whole(value: Any) -> Any:
    """An answer that is given piece by piece, as one list."""
    return list(value) if isinstance(value, Iterator) else value


def expected_of(program: Program, *, unfolds: bool = False) -> Expected:
    """The expected results of a whole program."""
    found = Expected(program.world, program.failing)
    for step in program.steps:
        found.execute(step, unfolds=unfolds)
    return found
