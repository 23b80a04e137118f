"""Finds the largest holdings: copies that have memory now, each with the op and line that made it, and its names.

A trace contains holdings for `trace memory`, and an out-of-memory error names some. A machine may have a million
tensors, so the search for a trace is sliced, and the search for an error examines a bounded number of tensors.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ....interpreter.types.sizes import exact_size
from ...model.device_state import DeviceState
from ...model.directory import Directory
from ...model.tensor import Copy, Storage, VmTensor
from ...tracing.flat import Where
from ...tracing.record import Holding
from ..answering import batched

if TYPE_CHECKING:
    from ...engine import Engine

PER_SLICE = 512  # tensors
PER_TRACE = 4096  # holdings
PER_ERROR = 5  # holdings
SEARCH_LIMIT = 5_000  # tensors, and also names, examined for an error, which takes some milliseconds
SHARE = 20  # at most 1 / SHARE of the time is spent on searches for errors: failing allocations must not delay others
Row = TypeVar("Row", bound=tuple[Any, ...])  # no two rows may be equal in the fields that are compared
Named: TypeAlias = dict[Storage, list[str]]


class SizedCopy(NamedTuple):
    """A copy of a storage, in a form that a heap can compare: no two have the same size and id."""

    nbytes: int
    id: int
    copy: Copy
    storage: Storage


def slices(engine: Engine, where: Where, limit: int = PER_TRACE) -> Iterator[list[Holding]]:
    """The `limit` largest holdings of all devices, the largest first, in slices, many of which are empty."""
    largest: list[SizedCopy] = []
    seen: set[int] = set()  # copies, by id
    everything = tensors(engine.directory)
    for chunk in batched(everything, PER_SLICE):
        keep_largest(largest, held_by(chunk, seen), limit)
        yield []
    names: Named = {}
    for some in batched(list(engine.directory.named()), PER_SLICE):
        add_names(names, some)
        yield []
    largest.sort(reverse=True)
    for start in range(0, len(largest), PER_SLICE):
        yield [row(one, names, where) for one in largest[start : start + PER_SLICE] if has_memory(one)]


class Largest:
    """The largest holdings of each device, for errors.

    A result is reused for `SHARE` times as long as its search took.
    """

    def __init__(self, directory: Directory, where: Where, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._where = where
        self._clock = clock
        self._found: dict[str, tuple[float, str]] = {}  # device -> (until when the sentence is reused, sentence)

    def on(self, device: DeviceState) -> str:
        """The sentence of `largest_on`, new or reused."""
        before = self._clock()
        until, sentence = self._found.get(device.name, (before, ""))
        if before >= until:
            sentence = largest_on(device, self._directory, self._where)
            after = self._clock()
            self._found[device.name] = (after + (after - before) * SHARE, sentence)
        return sentence


def largest_on(device: DeviceState, directory: Directory, where: Where) -> str:
    """The largest holdings of one device as a sentence for an error; empty if nothing is held there."""
    everything = tensors(directory)
    largest: list[SizedCopy] = []
    found = (one for one in held_by(islice(everything, SEARCH_LIMIT), set()) if one.copy.device is device)
    keep_largest(largest, found, PER_ERROR)
    if not largest:
        return ""
    more = "" if next(everything, None) is None else f" (of the {SEARCH_LIMIT} tensors examined)"
    names: Named = {}
    add_names(names, islice(directory.named(), SEARCH_LIMIT))
    rows = [sentence(row(one, names, where)) for one in sorted(largest, reverse=True)]
    return f"; the largest there{more}: {', '.join(rows)}"


def sentence(holding: Holding) -> str:
    """A holding as text: `4 KiB (4096 bytes) by matmul at a.py:3 in f (session 1, named 'w')`."""
    at = f" at {holding.location}" if holding.location else ""
    named = f", named {', '.join(map(repr, holding.names[:2]))}" if holding.names else ""
    return f"{exact_size(holding.nbytes)} by {holding.op or 'an unknown op'}{at} (session {holding.session}{named})"


def tensors(directory: Directory) -> Iterator[VmTensor]:
    """All tensors that a handle or a name holds; some more than once."""
    for _, _, tensor in directory.handles():
        yield tensor
    yield from [tensor for _, tensor in directory.named()]


def held_by(some: Iterable[VmTensor], seen: set[int]) -> Iterator[SizedCopy]:
    """The copies of the tensors' storages that have memory and are not in `seen`, to which they are added."""
    for tensor in some:
        storage = tensor.storage
        for copy in storage.current():
            if copy.id not in seen:
                seen.add(copy.id)
                if copy.buffer is not None and copy.nbytes > 0:
                    yield SizedCopy(copy.nbytes, copy.id, copy, storage)


def has_memory(sized: SizedCopy) -> bool:
    """Whether the copy still has its memory.

    If it was released, its objects may serve another tensor (`memory.recycling`).
    """
    return sized.copy.buffer is not None and sized.copy.id == sized.id


def keep_largest(heap: list[Row], more: Iterable[Row], limit: int) -> None:
    """Add rows to a heap of the `limit` largest. (`heapq.nlargest` would sort its result again for every slice.)"""
    for row in more:
        if len(heap) < limit:
            heapq.heappush(heap, row)
        elif heap and row > heap[0]:
            heapq.heapreplace(heap, row)


def add_names(found: Named, some: Iterable[tuple[str, VmTensor]]) -> None:
    for name, tensor in some:
        found.setdefault(tensor.storage, []).append(name)


def row(sized: SizedCopy, names: Named, where: Where) -> Holding:
    storage = sized.storage
    session, location = maker_of(storage, where)
    named = tuple(sorted(names.get(storage, ())))
    return Holding(sized.copy.id, sized.copy.device.name, sized.nbytes, storage.maker[0], session, location, named)


def maker_of(storage: Storage, where: Where) -> tuple[int, str]:
    """The session that made a storage, and the line that made it; 0 and "" if unknown."""
    session = 0 if storage.account is None else storage.account.session
    return session, where(session, storage.location).line if storage.location else ""
