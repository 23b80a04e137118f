"""The names of spans that are opened in loops: `step 14/forward` and `step 15/forward` are `step */forward`.

Spans have one name if their paths differ only in numbers at the ends of words. If all of them have the same number, the
name keeps the number, so that a span that is opened once has the name that the program gave it. In `conv2d` the number
is a part of the word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str, ...]  # names, the outermost first
ANY: Final = "*"
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)*(?![^\W_])")


def paths_of(span: Path) -> list[Path]:
    """The paths of all spans that something was issued in."""
    return [span[: depth + 1] for depth in range(len(span))]


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """A name for each path, the same for all of one form."""
    every = dict.fromkeys(paths)
    shown: dict[Path, list[str]] = {}
    for path in every:
        form = form_of(path)
        names = shown.setdefault(form, list(path))
        for depth, name in enumerate(path):
            if names[depth] != name:
                names[depth] = form[depth]
    return {path: "/".join(shown[form_of(path)]) for path in every}


@lru_cache(1 << 14)
def form_of(path: Path) -> Path:
    """The path without its numbers."""
    return tuple([_NUMBER.sub(ANY, name) for name in path])


@lru_cache(1 << 12)
def matches(path: Path, wanted: str) -> bool:
    """Is one of these spans of that name, or a part of their path of that form? `ANY` stands for any text but "/", so
    that the name of a loop's spans finds them all."""
    form = re.compile("[^/]*".join(map(re.escape, wanted.split(ANY))))
    return any(form.fullmatch("/".join(path[begin:end])) for begin, end in combinations(range(len(path) + 1), 2))
