"""The ids of a run's tensors, by the variables of its program."""

from __future__ import annotations

from collections.abc import Sequence

from ....interpreter.programs.program import Program


class NewIds:
    """Ids that nothing has, behind the `newest` one that a run has used."""

    __slots__ = ("newest",)

    def __init__(self, newest: int) -> None:
        self.newest = newest

    def take(self) -> int:
        """The next one."""
        self.newest += 1
        return self.newest


class Ids:
    """The id of each variable of a program, by the number of its first value: of what comes from outside, then new
    ones, behind the `newest`, or as they are asked for, if blocks of the program need ids in between. `results`: the
    ids of what the run returns, if they are to be used from the start."""

    __slots__ = ("_found", "_new", "_ranks", "_results", "newest", "outside")

    def __init__(
        self,
        program: Program,
        outside: Sequence[int],
        newest: int,
        new: NewIds | None = None,
        results: Sequence[int] = (),
    ) -> None:
        self.outside = outside  # of parameters and captured tensors, in their order
        self.newest = newest  # when the run began
        self._ranks = program.ranks
        self._results = dict(zip(program.returned, results, strict=False))
        self._new = new if program.asks else None
        self._found: dict[int, int] = {}
        if new is not None and self._new is None:
            new.newest += program.inner

    def __getitem__(self, variable: int) -> int:
        if variable in self._results:
            return self._results[variable]
        rank = self._ranks[variable]
        if rank == 0:
            return self.outside[variable]
        if self._new is None:
            return self.newest + rank
        id_ = self._found.get(rank)
        if id_ is None:
            id_ = self._found[rank] = self._new.take()
        return id_
