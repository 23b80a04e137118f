"""Making one graph of a segment's launches, and launching runs with the graph.

The first runs of a segment are launched call by call (`admission.runs_at_once`), and show which operands *move*: change
their address between runs. After some runs the device makes a graph of the calls (`streams.graph`), on the thread that
launches tasks; until then, and if the device refuses, runs are launched call by call. A run with the graph patches the
calls whose operands or numbers differ from the run before, and launches once.

A graph is dropped if an operand of a library's kernel moves for the first time; the next graph expects the operand to
move. After `GRAPHS` graphs, no other one is made for the segment.

The graph has a replay of its own, with its inner values in the memory for runs at admission; the order of the stream
keeps runs apart. The device counts the graph's own memory as allocated. When memory is short, graphs and the block of
larger arenas are freed (`memory.run_memory`); graphs are made again when there is room, up to `GRAPHS` times.

A graph that was made before the kernels of its fusions were compiled is replaced when they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ....interpreter.ops.positions import Check
from ....interpreter.types.meta import Scalar
from ....streams.graph import GraphRefusal, LaunchGraph, Moving
from ...memory.run_memory import address_of
from ...model.device_state import DeviceState
from ..compiling.recipe import ARENA, Recipe, fill
from .replay import Replay

SEEN: Final = 4  # runs that are launched call by call before a graph is made
COMPILING: Final = 256  # the same while kernels of fusions are being compiled
GRAPHS: Final = 4  # graphs of a segment, one after the other
SHORT: Final = "its memory was needed again and again"


class Graphed:
    """A graph and the replay from which it was made. `calls`: kernels and arguments, in order."""

    def __init__(self, graph: LaunchGraph, replay: Replay, addresses: Sequence[int], numbers: Sequence[Scalar]) -> None:
        self.graph = graph
        self.replay = replay
        self.calls = replay.calls()
        self._of_slot, self._of_number = replay.users()
        self._addresses = list(addresses)
        self._last = list(numbers)

    def put(self, arrays: Sequence[Any], numbers: Sequence[Scalar]) -> set[int] | None:
        """Patch a run's operands and numbers into the graph.

        None if that succeeded; otherwise the slots of the moved operands that could not be patched.
        """
        moved = [slot for slot, array in enumerate(arrays) if address_of(array) != self._addresses[slot]]
        other = [slot for slot, value in enumerate(numbers) if value is not self._last[slot]]
        self.replay.patch(arrays, numbers)
        if not moved and not other:
            return None
        patched: set[int] = set()
        for slot in moved:
            self._addresses[slot] = address_of(arrays[slot])
            patched.update(self._of_slot[slot])
        for slot in other:
            self._last[slot] = numbers[slot]
            patched.update(self._of_number.get(slot, ()))
        for index in sorted(patched):
            if not self.graph.patch(index, self.calls[index][1]):
                return {slot for slot in moved if index in self._of_slot[slot]}
        return None


class SegmentGraph:
    """The graph of one segment's launches, if there is one. `why`: the reason if there will be none.

    The driving thread calls all methods but `_make`.
    """

    def __init__(self, recipe: Recipe, constants: dict[int, Scalar], device: DeviceState) -> None:
        self.graphed: Graphed | None = None
        self.why = ""
        self._recipe, self._constants = recipe, constants
        self._state, self._device = device, device.backend
        self._long = recipe.arena > device.backend.run_arena
        self._early = False  # whether the graph was made while kernels were being compiled
        self._made: Graphed | GraphRefusal | None = None  # set by the launching thread
        self._asked = False
        self._begin()
        self._moving: set[int] = set()
        self._left = GRAPHS

    def _begin(self) -> None:
        """Start counting runs that are launched call by call."""
        self._seen = 0
        self._addresses: list[int] = []

    def launch(self, arrays: Sequence[Any], numbers: Sequence[Scalar], passing: Iterable[int]) -> bool:
        """Launch a run as one graph. False, without a launch, if the run has to be launched call by call.

        `passing`: the slots of operands to forget afterwards.
        """
        if self._asked and self._made is not None:
            self._take()
        graphed = self.graphed
        if graphed is None:
            return False
        if graphed.graph.dropped or graphed.replay.block is not self._block():
            self.give_up(SHORT)
            return False
        if self._early and not self._are_compiling():
            self._left += 1
            self.give_up("")
            return False
        missed = graphed.put(arrays, numbers)
        if missed is not None:
            self._moving.update(missed)
            self.give_up("an operand or a number of a library's kernel has changed again and again")
            return False
        try:
            graphed.graph.launch()
        except Exception as error:
            self._left = 0
            self.give_up(f"{type(error).__name__}: {error}")
            return False
        graphed.replay.forget(passing)
        return True

    def give_up(self, why: str) -> None:
        """Drop the graph. No other one is made if there were `GRAPHS` of them."""
        graphed, self.graphed = self.graphed, None
        if graphed is not None:
            graphed.graph.drop()
        self._begin()
        if not self._left:
            self.why = why

    def note(self, arena: Any, arrays: Sequence[Any], numbers: Sequence[Scalar]) -> None:
        """Note a run that was launched call by call, and request a graph after enough runs."""
        if self._asked or self.why:
            return
        addresses = list(map(address_of, arrays))
        if self._addresses:
            pairs = enumerate(zip(addresses, self._addresses, strict=True))
            self._moving.update(slot for slot, (now, before) in pairs if now != before)
        self._addresses = addresses
        self._seen += 1
        self._early = self._seen >= SEEN and self._are_compiling()
        if self._seen < SEEN or (self._seen < COMPILING and self._early):
            return
        self._asked, self._made = True, None
        self._left -= 1
        replay = Replay(self._recipe, self._constants, arena, self._device, own=True)
        replay.block = self._block()
        replay.patch(arrays, numbers)
        self._device.ask(lambda: self._make(replay, addresses, list(numbers)))

    def _make(self, replay: Replay, addresses: Sequence[int], numbers: Sequence[Scalar]) -> None:
        """Make the graph. Called by the thread that launches tasks."""
        try:
            graph = self._device.graph_of(replay.calls(), list(moving_in(self._recipe, self._moving)))
        except BaseException as error:
            self._made = GraphRefusal(f"{type(error).__name__}: {error}")
            raise
        self._made = graph if isinstance(graph, GraphRefusal) else Graphed(graph, replay, addresses, numbers)

    def _take(self) -> None:
        """Take over the result of the launching thread."""
        made, self._made, self._asked = self._made, None, False
        if isinstance(made, Graphed):
            self.graphed = made
            if made.replay.block is not self._block() or not self._device.keep_graph(made.graph):
                self.give_up(SHORT)
        elif made is not None and made.short:
            self.give_up(SHORT)
        elif made is not None:
            at = "" if made.call is None else f"{self._recipe.calls[made.call].plan.label}: "
            self.why = at + made.reason

    def _block(self) -> Any:
        """The present block of a larger arena; None for a small one."""
        return self._state.long_arena if self._long else None

    def _are_compiling(self) -> bool:
        """Whether kernels of its calls are still being compiled."""
        return any(map(is_pending, self._recipe.calls))

    @property
    def checks(self) -> Sequence[tuple[int, Check]]:
        """The checks that the graph's calls make on their data, to be evaluated after the launch."""
        return () if self.graphed is None else self.graphed.graph.checks

    def row(self) -> dict[str, Any]:
        """The description of the graph for reports."""
        if self.graphed is None:
            return {"why": self.why or "made after some more runs"}
        graph = self.graphed.graph
        return {"nodes": graph.nodes, "copies": graph.copies, "bytes": graph.nbytes}


def moving_in(recipe: Recipe, slots: Collection[int]) -> Iterable[Moving]:
    """The arguments of calls that are operands in these slots, or views of such operands."""
    for index, call in enumerate(recipe.calls):
        first = len(call.arguments) - (1 if call.kernel is fill else len(call.results))
        for position, argument in enumerate(call.arguments):
            if not isinstance(argument, int) and argument.slot != ARENA and argument.slot in slots:
                written = position >= first
                yield Moving(index, position, not written or call.plan.op.writes_part, written)


def is_pending(call: Any) -> bool:
    """Whether the kernel of a call is being compiled; False for kernels that do not report it."""
    pending = getattr(call.kernel, "is_pending", None)
    return pending is not None and bool(pending())
