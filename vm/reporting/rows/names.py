"""Rows that describe what stands under names, of either engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ....interpreter.errors import ProtocolError
from ....interpreter.wire.forms import shown
from ...model.directory import Published, PublishedRoutine

TENSOR: Final = "tensor"
ROUTINE: Final = "routine"


def name_kind(kind: object) -> str:
    """The kind that was asked for: "" for any. ProtocolError for one that does not exist."""
    if type(kind) is not str or kind not in ("", TENSOR, ROUTINE):
        raise ProtocolError(f"a name stands for a {TENSOR} or a {ROUTINE}, not for {shown(kind)}")
    return kind


def names_of(names: Mapping[str, Published[Any]], kind: str) -> list[str]:
    """The names, sorted; only those of tensors, or of routines, unless the kind is ""."""
    return sorted(name for name, one in names.items() if kind in ("", kind_of(one)))


def kind_of(published: Published[Any]) -> str:
    return TENSOR if published.routine is None else ROUTINE


def name_row(name: str, published: Published[Any], shape_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    routine = published.routine
    found = {"name": name, "kind": kind_of(published)}
    if routine is None:
        return found | shape_of(published.tensors[0])
    return found | routine_row(routine) | {"tensors": [shape_of(tensor) for tensor in published.tensors]}


def routine_row(routine: PublishedRoutine) -> dict[str, Any]:
    """A published routine: what it takes, where it runs, and how many results it has."""
    program = routine.program
    return {
        "program": program.digest,
        "devices": list(routine.devices),
        "ops": len(program.steps),
        "parameters": [f"{source.name} {source.meta}".strip() for source in program.parameters],
        "numbers": [f"{number.name} {number.kind}".strip() for number in program.number_parameters],
        "results": len(program.results),
        "captured": [source.name for source in program.captured],
    }
