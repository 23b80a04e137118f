"""The passes by name, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from ...errors import MetadataError
from ..program import Program
from .common_subexpressions import common_subexpressions
from .dead_results import dead_results
from .numbers import numbers
from .transfers import transfers

Pass: TypeAlias = Callable[[Program], Program]

PASSES: Final[dict[str, Pass]] = {
    "dead_results": dead_results,
    "numbers": numbers,
    "transfers": transfers,
    "common_subexpressions": common_subexpressions,
}


def apply(program: Program, names: str | Iterable[str] = "all") -> Program:
    """The program after these passes, whatever the order of the names; "all" and "none" stand for those.

    MetadataError for a name that is none.
    """
    chosen = chosen_names(names)
    for name, each in PASSES.items():
        if name in chosen:
            program = each(program)
    return program


def chosen_names(names: str | Iterable[str]) -> frozenset[str]:
    """The passes that are named; MetadataError for a name that is none."""
    if isinstance(names, str):
        names = {"all": tuple(PASSES), "none": ()}.get(names, (names,))
    chosen = tuple(names)
    for name in chosen:
        if name not in PASSES:
            raise MetadataError(f'there is no pass {name!r}: there are {", ".join(PASSES)}, or "all" or "none"')
    return frozenset(chosen)
