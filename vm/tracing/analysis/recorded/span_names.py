"""Names for the spans of loops: `step 14/forward` and `step 15/forward` are both named `step */forward`.

Spans share a name if their paths differ only in numbers at the ends of words. A number that is the same in all of
them stays, so a span that is opened once keeps the name that the program gave it. In `conv2d` the number is not at
the end of the word, so it stays, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str, ...]  # the names of nested spans, the outermost first
ANY: Final = "*"
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)*(?![^\W_])")


def paths_of(span: Path) -> list[Path]:
    """The paths of a span and of all spans around it."""
    return [span[: depth + 1] for depth in range(len(span))]


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """The name of each path. Paths of the same form share a name."""
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
    """The form of a path: its names with `ANY` in place of numbers."""
    return tuple([_NUMBER.sub(ANY, name) for name in path])


@lru_cache(1 << 12)
def matches(path: Path, wanted: str) -> bool:
    """Whether a part of the path, of one or more names, matches `wanted`.

    `ANY` stands for any text without "/", so the name of a loop's spans matches all of them.
    """
    form = re.compile("[^/]*".join(map(re.escape, wanted.split(ANY))))
    return any(form.fullmatch("/".join(path[begin:end])) for begin, end in combinations(range(len(path) + 1), 2))
