"""Replaying a compiled segment: a flat list of bound calls, into which each run patches its operands.

The arguments of a call are bound once: the arena's values as arrays, constants as arrays without dimensions. A run
patches its operands, views of them, and its numbers, and then calls one kernel after the other. A replay serves one run
at a time. An operand that is the same as in the run before needs no patch, if it was not forgotten.

A timed run records the times of its calls (`Stamps`). It makes the same calls in the same loop, which iterates over
`timed` instead of a list; that costs two clock reads per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self, TypeAlias

from ....interpreter.schema.opdef import BoundKernel
from ....interpreter.schema.promotion import DType, number_dtype
from ....interpreter.types.meta import Scalar
from ....streams.device import Device
from ...model.number import NumberArray
from ..compiling.recipe import ARENA, BufferSlice, KernelStep, Recipe, fill

SLICE: Final = 600_000  # work, in element operations, that is done without a pause: some 100 us
CALL: Final = 2_000  # the work of a call itself

Arguments: TypeAlias = list[Any]
# The uses of an operand, or of a view of it: the arguments of a call, and the position in them.
Spots: TypeAlias = list[tuple[Arguments, int]]


class PassedNumber:
    """A number, for calls that take it in the same form: in an array of `dtype`, or unchanged if that is None."""

    __slots__ = ("_last", "_number", "slot", "spots")

    def __init__(self, slot: int, dtype: DType | None) -> None:
        self.slot = slot
        self.spots: Spots = []
        self._number = None if dtype is None else NumberArray(dtype)
        self._last: Any = None

    def put(self, value: Scalar) -> None:
        """Put a run's number into the calls that take it, unless the number is unchanged."""
        converted = value if self._number is None else self._number.of(value)
        if converted is not self._last:
            self._last = converted
            for arguments, index in self.spots:
                arguments[index] = converted


class Replay:
    """A segment's calls, bound to an arena on a device.

    `slices`: the calls in slices of bounded work, each with the index of its first call. `own`: whether the arena is
    the one for all runs at admission, and not a block of the device's memory.
    """

    def __init__(
        self, recipe: Recipe, constants: dict[int, Scalar], arena: Any, device: Device, *, own: bool = False
    ) -> None:
        self.arena = arena
        self._device = device
        self._lay_over = device.lay_over
        self.own = own
        self.block: Any = None  # the block of the device's memory that contains a larger arena
        self.slots = len(recipe.reads) + len(recipe.written) + len(recipe.made)
        self._last: list[Any] = [None] * self.slots
        self._spots: list[Spots] = [[] for _ in range(self.slots)]
        self._views: list[list[tuple[BufferSlice, Spots]]] = [[] for _ in range(self.slots)]
        numbers: dict[tuple[int, Any], PassedNumber] = {}
        bound: dict[BufferSlice, Any] = {}
        calls = [self._bind(call, numbers, bound) for call in recipe.calls]
        self._numbers = [given for given in numbers.values() if given.slot not in constants]
        for given in numbers.values():
            if given.slot in constants:
                given.put(constants[given.slot])
        self.slices = sliced(calls, [call.work + CALL for call in recipe.calls])

    def _bind(
        self, call: KernelStep, numbers: dict[tuple[int, Any], PassedNumber], bound: dict[BufferSlice, Any]
    ) -> tuple[Any, Arguments]:
        arguments: Arguments = [None] * len(call.arguments)
        for index, argument in enumerate(call.arguments):
            if isinstance(argument, int):
                slot, plain = ~argument, call.plan.number_array is None or call.kernel is not call.plan.kernel
                dtype = None if plain else number_dtype(call.plan.op, call.plan.metas)
                given = numbers.get((slot, dtype))
                if given is None:
                    given = numbers[slot, dtype] = PassedNumber(slot, dtype)
                given.spots.append((arguments, index))
            elif argument.slot == ARENA:
                array = bound.get(argument)
                if array is None:
                    array = bound[argument] = self._laid_over(self.arena, argument)
                arguments[index] = array
            elif argument.whole:
                self._spots[argument.slot].append((arguments, index))
            else:
                self._view_spots(argument).append((arguments, index))
        return filling(self._device) if call.kernel is fill else call.kernel, arguments

    def _laid_over(self, array: Any, buffer_slice: BufferSlice) -> Any:
        """An array for a value in a block of memory."""
        return self._lay_over(array, buffer_slice.meta, buffer_slice.offset, buffer_slice.strides)

    def _view_spots(self, buffer_slice: BufferSlice) -> Spots:
        for other, spots in self._views[buffer_slice.slot]:
            if other == buffer_slice:
                return spots
        spots = []
        self._views[buffer_slice.slot].append((buffer_slice, spots))
        return spots

    def calls(self) -> list[tuple[Any, Arguments]]:
        """All calls, in order."""
        return [call for _, calls in self.slices for call in calls]

    def users(self) -> tuple[list[set[int]], dict[int, set[int]]]:
        """For each slot of an operand, and of a number that is no constant, the indices of the calls that use it."""
        indices = {id(arguments): index for index, (_, arguments) in enumerate(self.calls())}
        operands = [{indices[id(arguments)] for arguments, _ in spots} for spots in self._spots]
        for slot, views in enumerate(self._views):
            operands[slot].update(indices[id(arguments)] for _, spots in views for arguments, _ in spots)
        numbers: dict[int, set[int]] = {}
        for given in self._numbers:
            numbers.setdefault(given.slot, set()).update(indices[id(arguments)] for arguments, _ in given.spots)
        return operands, numbers

    def patch(self, operands: Sequence[Any], numbers: Sequence[Scalar]) -> None:
        """Put a run's operands and numbers into the calls. A poisoned operand is None."""
        last = self._last
        for slot, array in enumerate(operands):
            if array is not last[slot]:
                self._put(slot, array)
        for given in self._numbers:
            given.put(numbers[given.slot])

    def _put(self, slot: int, array: Any) -> None:
        """Put an operand and its views into the calls."""
        self._last[slot] = array
        for arguments, index in self._spots[slot]:
            arguments[index] = array
        for buffer_slice, spots in self._views[slot]:
            view = None if array is None else self._laid_over(array, buffer_slice)
            for arguments, index in spots:
                arguments[index] = view

    def forget(self, slots: Iterable[int]) -> None:
        """Drop a run's operands in these slots, since their memory may be reused from now on."""
        for slot in slots:
            self._put(slot, None)


def filling(device: Device) -> BoundKernel:
    """The kernel of `fill` on a device."""

    def fill_there(old: Any, new: Any) -> None:
        device.copy(new, old)

    return fill_there


def sliced(calls: list[Any], works: Sequence[int]) -> list[tuple[int, list[Any]]]:
    """The calls in slices of at most `SLICE` work, each with the index of its first call. A larger call is alone."""
    slices: list[tuple[int, list[Any]]] = []
    start, total = 0, 0
    for index, work in enumerate(works):
        if total and total + work > SLICE:
            slices.append((start, calls[start:index]))
            start, total = index, 0
        total += work
    slices.append((start, calls[start:]))
    return slices


class Stamps:
    """The times of one run: a start and an end for each call, in order."""

    __slots__ = ("clock", "times")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.times: list[int] = []


class timed:  # noqa: N801 - used like `iter`
    """Iterates over the calls of a slice and records their times. Has a length hint, like a list's iterator."""

    __slots__ = ("_calls", "_next", "_stamps")

    def __init__(self, calls: Sequence[Any], stamps: Stamps) -> None:
        self._calls = calls
        self._stamps = stamps
        self._next = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        index, stamps, calls = self._next, self._stamps, self._calls
        if index:
            stamps.times.append(stamps.clock())
        if index == len(calls):
            raise StopIteration
        self._next = index + 1
        stamps.times.append(stamps.clock())
        return calls[index]

    def __length_hint__(self) -> int:
        return len(self._calls) - self._next
