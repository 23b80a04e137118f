"""A routine's captures: entries, found by the kind of a call and by the state that a capture depends on.

They are looked up by the arguments' key (`structure`); then by the values of the numbers that are *fixed* for that key,
because a capture has read them; then by the guards. A routine has up to `MAX_ENTRIES` entries; the least recently used
one is dropped. Tables are replaced, never changed, so calls look them up without the lock that captures hold to add to
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..capture.structure import Arguments, exact
from ..core.core import Core
from ..tensor.tensor import Tensor
from .guard_checks import reference

if TYPE_CHECKING:
    from ...interpreter.programs.convention import CallingConvention
    from ..capture.evaluation import Evaluation
    from ..capture.results import Make
    from ..linking.linked import ProgramBinding
    from .guards import Guards

MAX_ENTRIES: Final = 64  # entries of a routine
MAX_ENTRIES_PER_KIND: Final = 4  # with equal fixed numbers: they differ in their guards
_NOW: Final = count()  # a clock: later uses have higher numbers


class CallForm(NamedTuple):
    """The calling convention of a captured function, and the function that makes its result from the program's."""

    convention: CallingConvention
    make: Make


class CacheEntry:
    """One capture, ready to run. `numbers`: the numbers among the arguments of the capture."""

    def __init__(
        self, linked: ProgramBinding, evaluation: Evaluation, called: CallForm, guards: Guards, given: Arguments
    ) -> None:
        self.core = linked._core
        self.handler = self.core.calls.chain.handler  # keeps it alive: its id is in the key
        self.linked = linked
        self.evaluation = evaluation
        self.convention, self.make = called
        self.guards = guards
        self.numbers = tuple(given.numbers)
        self.objects = tuple(map(reference, given.objects))
        self.used = next(_NOW)

    def run(self, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        """Run the program with these arguments; returns the function's result. Misfit if the arguments do not fit."""
        values = self.evaluation.values(numbers, self.core.random_state)
        return self.make(self.linked.run(tensors, values), tensors, values)

    def suits(self, objects: Sequence[Any]) -> bool:
        """Return whether the entry fits these other objects, and its guards hold."""
        if objects and not all(known() is each for known, each in zip(self.objects, objects, strict=True)):
            return False
        for tensor in self.linked.captured:
            if tensor._id < 0:  # released: the function shall raise the error
                return False
        return self.guards.hold()

    @property
    def dead(self) -> bool:
        """Return whether the entry is of no further use."""
        return self.core.closed or any(known() is None for known in self.objects)


class Variants(NamedTuple):
    """The entries of one key: by the values of the numbers at the positions `fixed`, last used first."""

    fixed: tuple[int, ...]
    entries: dict[tuple[Any, ...], tuple[CacheEntry, ...]]


class Entries:
    """The entries of one routine."""

    def __init__(self) -> None:
        self._variants: dict[tuple[Any, ...], Variants] = {}
        self.lock = threading.RLock()  # for captures that add to the tables; a signal handler may capture, too

    def latest(self) -> CacheEntry | None:
        return max(self._all(), key=lambda entry: entry.used, default=None)

    def of(self, core: Core) -> list[CacheEntry]:
        """The usable entries of a session."""
        return [each for each in self._all() if each.core is core and not each.dead and each.guards.hold()]

    def find(self, key: tuple[Any, ...], numbers: Sequence[Any], objects: Sequence[Any]) -> CacheEntry | None:
        """The entry for a call; None if there is none. The hot path of a routine's call."""
        variants = self._variants.get(key)
        if variants is None:
            return None
        fixed = variants.fixed
        for entry in variants.entries.get(values_at(fixed, numbers) if fixed else (), ()):
            if entry.suits(objects):
                entry.used = next(_NOW)
                return entry
        return None

    def fixed(self, key: tuple[Any, ...]) -> tuple[int, ...]:
        """The positions of the numbers that are fixed for that key."""
        variants = self._variants.get(key)
        return () if variants is None else variants.fixed

    def add(self, key: tuple[Any, ...], entry: CacheEntry, fixed: frozenset[int]) -> None:
        """Add an entry whose capture fixed the numbers at these positions."""
        with self.lock:
            self._keep(lambda each: not each.dead)
            positions = tuple(sorted(fixed.union(self.fixed(key))))
            known = self._variants.get(key)
            before = () if known is None else tuple(each for some in known.entries.values() for each in some)
            self._variants[key] = arranged(positions, (entry, *before))
            while len(self) > MAX_ENTRIES:
                oldest = min(self._all(), key=lambda each: each.used)
                self._keep(lambda each, oldest=oldest: each is not oldest)  # type: ignore[misc]

    def _all(self) -> list[CacheEntry]:
        return [entry for variants in self._variants.values() for some in variants.entries.values() for entry in some]

    def __len__(self) -> int:
        return len(self._all())

    def _keep(self, which: Callable[[CacheEntry], bool]) -> None:
        for key, variants in list(self._variants.items()):
            remaining = tuple(each for some in variants.entries.values() for each in some if which(each))
            self._variants[key] = arranged(variants.fixed, remaining)
            if not remaining:
                del self._variants[key]


def arranged(fixed: tuple[int, ...], entries: Sequence[CacheEntry]) -> Variants:
    """The entries by fixed numbers; of those that differ only in their guards, the newest."""
    by_numbers: dict[tuple[Any, ...], tuple[CacheEntry, ...]] = {}
    for entry in entries:
        which = values_at(fixed, entry.numbers)
        by_numbers[which] = (*by_numbers.get(which, ()), entry)[:MAX_ENTRIES_PER_KIND]
    return Variants(fixed, by_numbers)


def values_at(positions: Sequence[int], numbers: Sequence[Any]) -> tuple[Any, ...]:
    """The numbers at these positions, in a form that distinguishes them to the last bit."""
    return tuple([exact(numbers[n]) for n in positions])
