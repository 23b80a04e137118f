"""Names of global tensors: the machine has a name for each part, from which the whole is assembled.

`weights` in two slices is published as `weights @0 of 2: split(0)` and `weights @1 of 2: split(0)`, in one message;
users see one name. To the machine, each part is an ordinary tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ...interpreter.layouts.layout import Broadcast
from ...interpreter.layouts.part_names import covering_names, families, is_whole, part_of, user_name
from ...interpreter.layouts.text import layout_text
from ..global_tensors.published import label_of, of_published
from ..global_tensors.tensor import GlobalTensor


def expanded(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values to publish by name, with names of their own for the parts of global tensors."""
    for name, value in given.items():
        if type(value) is GlobalTensor:
            label = label_of(value._form)
            for number, part in enumerate(value._living()._parts):
                yield f"{name} @{number} of {label}", part
        else:
            yield name, value


def shown(names: Iterable[str]) -> list[str]:
    """The names as users have given them, sorted, without duplicates."""
    return sorted(set(map(user_name, names)))


def machine_names(names: Sequence[str], published: Iterable[str]) -> dict[str, list[str]]:
    """The machine's names behind each of these names: the name itself if it is published; otherwise the names of all
    published parts, if they make up the whole global tensor."""
    there = set(published)
    ways = families(there)
    return {name: [name] if name in there else parts_of(ways.get(name, [])) or [name] for name in names}


def parts_of(ways: Sequence[list[str]]) -> list[str]:
    """The names of the parts to assemble; none if each layout lacks a part of the value."""
    found = [way if is_whole(way) else list(covering_names(way).values()) for way in ways]
    return next(filter(None, found), [])


def put_together(asked: Mapping[str, Sequence[str]], values: Mapping[str, Any]) -> list[Any]:
    """The value of each name, assembled from the values of the machine's names."""
    made = []
    for name, machine_names in asked.items():
        parts = [values[each] for each in machine_names]
        made.append(parts[0] if list(machine_names) == [name] else of_published(label_of_parts(machine_names), parts))
    return made


def label_of_parts(names: Sequence[str]) -> str:
    """The layout of these parts. Without a lost part, each occurs once."""
    first = part_of(names[0])
    if first is None:
        raise AssertionError("these are names of parts")
    grid = first.grid
    if len(names) < prod(grid):
        grid = tuple(1 if isinstance(atom, Broadcast) else size for size, atom in zip(grid, first.layout, strict=True))
    return layout_text(grid, first.layout)
