"""Replaying a compiled segment: a flat list of bound calls, in which a run's operands are patched.

The arguments of a call are bound once: the arena's values as arrays, constants as arrays without dimensions. A run puts
its operands, views of them, and its numbers in their places, and calls one kernel after the other. A replay serves one
run at a time. Operands that are the same ones as in the run before are in their places already, if they were not
forgotten.

A run that is recorded in detail has the times of its calls (`Stamps`). The calls are the same, made by the
same loop: it goes through `timed` instead of a list's iterator, which costs two clock reads a call.
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
CALL: Final = 2_000  # of a call itself

Arguments: TypeAlias = list[Any]
# Where an operand, or a view of it, goes: the arguments of a call, and the position there.
Spots: TypeAlias = list[tuple[Arguments, int]]


class PassedNumber:
    """A number as some calls take it: in an array of their dtype, or as it is (None). `spots`: where it goes."""

    __slots__ = ("_last", "_number", "slot", "spots")

    def __init__(self, slot: int, dtype: DType | None) -> None:
        self.slot = slot
        self.spots: Spots = []
        self._number = None if dtype is None else NumberArray(dtype)
        self._last: Any = None

    def put(self, value: Scalar) -> None:
        """Put a run's number in its places, unless it is there."""
        found = value if self._number is None else self._number.of(value)
        if found is not self._last:
            self._last = found
            for arguments, index in self.spots:
                arguments[index] = found


class Replay:
    """A segment's calls, bound to an arena on a device.

    `slices` are the calls in pieces of bounded work, each with the place of its first call. `own`: the arena is
    no block of the device's memory, but what all runs at admission use.
    """

    def __init__(
        self, recipe: Recipe, constants: dict[int, Scalar], arena: Any, device: Device, *, own: bool = False
    ) -> None:
        self.arena = arena
        self._device = device
        self._lay_over = device.lay_over
        self.own = own
        self.block: Any = None  # of the device's memory in which an arena of its own lies, if it is a larger one
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
                slot, plain = ~argument, call.plan.number is None or call.kernel is not call.plan.kernel
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

    def _laid_over(self, array: Any, place: BufferSlice) -> Any:
        """The value at a place of a block of memory."""
        return self._lay_over(array, place.meta, place.offset, place.strides)

    def _view_spots(self, place: BufferSlice) -> Spots:
        for other, spots in self._views[place.slot]:
            if other == place:
                return spots
        spots = []
        self._views[place.slot].append((place, spots))
        return spots

    def calls(self) -> list[tuple[Any, Arguments]]:
        """All calls, in order."""
        return [call for _, calls in self.slices for call in calls]

    def users(self) -> tuple[list[set[int]], dict[int, set[int]]]:
        """The places of the calls that use an operand, by its slot, or a number that is no constant, by its slot."""
        place = {id(arguments): index for index, (_, arguments) in enumerate(self.calls())}
        found = [{place[id(arguments)] for arguments, _ in spots} for spots in self._spots]
        for slot, views in enumerate(self._views):
            found[slot].update(place[id(arguments)] for _, spots in views for arguments, _ in spots)
        numbers: dict[int, set[int]] = {}
        for given in self._numbers:
            numbers.setdefault(given.slot, set()).update(place[id(arguments)] for arguments, _ in given.spots)
        return found, numbers

    def patch(self, operands: Sequence[Any], numbers: Sequence[Scalar]) -> None:
        """Put a run's operands and numbers in their places; None for an operand that is poisoned."""
        last = self._last
        for slot, array in enumerate(operands):
            if array is not last[slot]:
                self._put(slot, array)
        for given in self._numbers:
            given.put(numbers[given.slot])

    def _put(self, slot: int, array: Any) -> None:
        """Put an operand, and views of it, in their places."""
        self._last[slot] = array
        for arguments, index in self._spots[slot]:
            arguments[index] = array
        for place, spots in self._views[slot]:
            view = None if array is None else self._laid_over(array, place)
            for arguments, index in spots:
                arguments[index] = view

    def forget(self, slots: Iterable[int]) -> None:
        """Drop a run's operands in these slots, whose memory may be others' from now on."""
        for slot in slots:
            self._put(slot, None)


def filling(device: Device) -> BoundKernel:
    """`fill` on a device."""

    def fill_there(old: Any, new: Any) -> None:
        device.copy(new, old)

    return fill_there


def sliced(calls: list[Any], works: Sequence[int]) -> list[tuple[int, list[Any]]]:
    """The calls in slices of at most SLICE, a longer call alone; each with the place of its first call."""
    found: list[tuple[int, list[Any]]] = []
    start, total = 0, 0
    for place, work in enumerate(works):
        if total and total + work > SLICE:
            found.append((start, calls[start:place]))
            start, total = place, 0
        total += work
    found.append((start, calls[start:]))
    return found


class Stamps:
    """The times of one run: two for each call that was made, in order."""

    __slots__ = ("clock", "times")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.times: list[int] = []


class timed:  # noqa: N801 - it is used as `iter` is
    """The calls of a slice, one after the other; knows how many are left, as a list's iterator does."""

    __slots__ = ("_calls", "_place", "_stamps")

    def __init__(self, calls: Sequence[Any], stamps: Stamps) -> None:
        self._calls = calls
        self._stamps = stamps
        self._place = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        place, stamps, calls = self._place, self._stamps, self._calls
        if place:
            stamps.times.append(stamps.clock())
        if place == len(calls):
            raise StopIteration
        self._place = place + 1
        stamps.times.append(stamps.clock())
        return calls[place]

    def __length_hint__(self) -> int:
        return len(self._calls) - self._place
