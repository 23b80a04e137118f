"""Finds the matching lines of two traces, even if the program was edited in between.

A trace does not contain the program's text, so a line is identified by its function, by its position among the lines
of that function, and by the ops that it issues. `difflib` aligns the lines of the two versions of a function, with
the set of ops in place of the line's text. Where the two differ, lines with a common op match, in order. So an
inserted, deleted or changed line does not affect the others. The lines of a function that was renamed, or moved to
another file, do not match.

A file is identified by its name without folders, so that two checkouts can be compared. The numbers of a notebook's
cells are ignored, since they change with each run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, TypeAlias

_FRAMES: Final = " <- "
_FRAME: Final = re.compile(r"(?P<file>.*?)(?::|, line )(?P<line>\d+)(?P<function>| in .*)")
_CELL: Final = re.compile(r"(?<=\[)\d+(?=\])")

Ops: TypeAlias = Mapping[str, frozenset[str]]  # location -> the ops that it issues


def function_of(location: str) -> str:
    """The location without numbers of lines and cells, and without folders: `train.py in step`."""
    return _FRAMES.join(map(_function, location.split(_FRAMES)))


def _function(frame: str) -> str:
    found = _FRAME.fullmatch(frame)
    if found is None:
        return frame
    return _CELL.sub("", found["file"]).rpartition("/")[2] + found["function"]


def line_order(location: str) -> tuple[tuple[int, ...], str]:
    """The key by which the locations of a function are sorted: the numbers of lines and cells."""
    found = (_FRAME.fullmatch(frame) for frame in location.split(_FRAMES))
    return tuple([int(n) for one in found if one for n in (*_CELL.findall(one["file"]), one["line"])]), location


def matching_lines(before: Ops, after: Ops) -> Iterator[tuple[str, str]]:
    """The pairs of locations, one of each trace, that are the same line."""
    functions = by_function(after)
    for function, old in by_function(before).items():
        yield from aligned(old, functions.get(function, []), before, after)


def by_function(locations: Iterable[str]) -> dict[str, list[str]]:
    """The locations by function, in the order of the program."""
    found: dict[str, list[str]] = defaultdict(list)
    for location in sorted(locations, key=line_order):
        found[function_of(location)].append(location)
    return found


def aligned(old: Sequence[str], new: Sequence[str], before: Ops, after: Ops) -> Iterator[tuple[str, str]]:
    """The matching pairs of lines of one function."""
    matcher = SequenceMatcher(None, [before[line] for line in old], [after[line] for line in new], autojunk=False)
    for _, start, end, new_start, new_end in matcher.get_opcodes():
        if end - start == new_end - new_start:
            yield from zip(old[start:end], new[new_start:new_end], strict=True)
        else:
            yield from _alike(old[start:end], new[new_start:new_end], before, after)


def _alike(old: Sequence[str], new: Sequence[str], before: Ops, after: Ops) -> Iterator[tuple[str, str]]:
    """Pairs of lines that have an op in common, in order."""
    rest = iter(new)
    for line in old:
        for other in rest:
            if before[line] & after[other]:
                yield line, other
                break
