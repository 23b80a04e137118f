"""Names of global tensors: each part has a name of its own at the machine, from which the whole is put together.

`weights` in two slices is published as `weights @0 of 2: split(0)` and `weights @1 of 2: split(0)`, in one message;
users see one name. So the machine shows, counts and keeps parts as it does all tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from ...interpreter.layouts.text import parsed
from ..global_tensors.published import label_of, of_published
from ..global_tensors.tensor import GlobalTensor

_PART: Final = re.compile(r"(.+) @(\d{1,6}) of (\d[^@]*: .+)", re.ASCII | re.DOTALL)


class PartName(NamedTuple):
    """What the name of a part says: the name of the whole, the number of the part, and how the parts lie."""

    whole: str
    number: int
    label: str


def names_of_parts(name: str, label: str) -> list[str]:
    """The names of the parts of what is published under a name."""
    grid, _ = parsed(label)
    return [f"{name} @{number} of {label}" for number in range(prod(grid))]


def expanded(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is to be published, with the parts of global tensors, under their names."""
    for name, value in given.items():
        if type(value) is GlobalTensor:
            yield from zip(names_of_parts(name, label_of(value._form)), value._living()._parts, strict=True)
        else:
            yield name, value


def part_of(name: str) -> PartName | None:
    """What a part's name says; None for any other name."""
    found = _PART.fullmatch(name)
    if found is None:
        return None
    whole, number, label = found.groups()
    try:
        grid, _ = parsed(label)
    except ValueError:
        return None
    return PartName(whole, int(number), label) if int(number) < prod(grid) else None


def shown(names: Iterable[str]) -> list[str]:
    """The names as users have given them, sorted, each once."""
    return sorted({name if (part := part_of(name)) is None else part.whole for name in names})


def behind(names: Sequence[str], published: Iterable[str]) -> dict[str, list[str]]:
    """The names at the machine behind each of these: itself if it is there, or all parts of one global tensor."""
    there = set(published)
    labels: dict[str, set[str]] = {}
    for part in filter(None, map(part_of, there)):
        labels.setdefault(part.whole, set()).add(part.label)
    found = {}
    for name in names:
        ways = [[name], *(names_of_parts(name, label) for label in sorted(labels.get(name, ())))]
        found[name] = next((way for way in ways if there.issuperset(way)), [name])
    return found


def stale(kept: Iterable[str], names: Iterable[str], published: Iterable[str]) -> list[str]:
    """What is published for these names besides what is kept."""
    wanted, known = set(names), set(kept)
    return [one for one in published if one not in known and (one in wanted or whole_of(one) in wanted)]


def whole_of(name: str) -> str | None:
    """The name of the whole, of a part's name."""
    part = part_of(name)
    return None if part is None else part.whole


def put_together(asked: Mapping[str, Sequence[str]], found: Mapping[str, Any]) -> list[Any]:
    """What is published under each name, of what was found under the names at the machine."""
    made = []
    for name, behind_it in asked.items():
        part = None if list(behind_it) == [name] else part_of(behind_it[0])
        parts = [found[each] for each in behind_it]
        made.append(parts[0] if part is None else of_published(part.label, parts))
    return made
