"""Lines are found again after edits."""

from __future__ import annotations

import random

from tensord.vm.tracing.analysis.sums.sites import Ops, function_of, line_order, matching_lines

from .....each_case import each_case


def ops(text: str, file: str = "train.py", function: str = "step", first: int = 1) -> Ops:
    """A line of a function for each word, whose ops are its letters; `.` is a line without ops."""
    words = enumerate(text.split(), first)
    return {f"{file}:{line} in {function}": frozenset(word) for line, word in words if word != "."}


def pairs(before: Ops, after: Ops) -> list[tuple[int, int]]:
    """The numbers of lines that belong together."""
    return sorted((line(one), line(other)) for one, other in matching_lines(before, after))


def line(location: str) -> int:
    return int(location.partition(":")[2].partition(" ")[0])


@each_case(
    ("before", "after", "expected"),
    [
        ("a b c", ". a b c", [(1, 2), (2, 3), (3, 4)]),  # a comment on top
        ("a b c", "a . b . . c", [(1, 1), (2, 3), (3, 6)]),
        ("a b c", "a d b c", [(1, 1), (2, 3), (3, 4)]),  # a new line
        ("a b c", "a c", [(1, 1), (3, 2)]),  # one is gone
        ("a a a", "a a a", [(1, 1), (2, 2), (3, 3)]),  # the same op at each
        ("a bc d", "a bx d", [(1, 1), (2, 2), (3, 3)]),  # another op at a line
        ("a b d", "a x by d", [(1, 1), (2, 3), (3, 4)]),
        ("", "a b", []),
        ("a", "", []),
    ],
)
def test_edits_within_a_function(before: str, after: str, expected: list[tuple[int, int]]) -> None:
    assert pairs(ops(before), ops(after)) == expected


def test_functions_are_apart_and_found_by_their_names() -> None:
    before = {**ops("a b", function="f"), **ops("a b", function="g", first=10)}
    after = {**ops("a b", function="g", first=3), **ops("a b", function="f", first=20)}
    assert pairs(before, after) == [(1, 20), (2, 21), (10, 3), (11, 4)]
    assert pairs(ops("a", function="f"), ops("a", function="h")) == []
    assert pairs(ops("a"), ops("a", file="other.py")) == []
    assert pairs(ops("a", file="old/train.py"), ops(". a", file="/new/place/train.py")) == [(1, 2)]


@each_case(
    ("location", "function", "numbers"),
    [
        ("a/b.py:9 in f", "b.py in f", (9,)),
        ("b.py:9 in f.<locals>.<lambda>", "b.py in f.<locals>.<lambda>", (9,)),
        ("lib/x.py:20 in g <- a.py:3 in main", "x.py in g <- a.py in main", (20, 3)),
        ("Cell In[12], line 4 in <module>", "Cell In[] in <module>", (12, 4)),
        ("", "", ()),
        ("no line", "no line", ()),
    ],
)
def test_functions_and_line_order(location: str, function: str, numbers: tuple[int, ...]) -> None:
    assert (function_of(location), line_order(location)) == (function, (numbers, location))


@each_case("seed", range(20))
def test_lines_that_were_put_in_move_no_other(seed: int) -> None:
    rng = random.Random(seed)
    lines = rng.sample("abcdefghij", 8)
    edited = [part for each in lines for part in (*["."] * rng.randrange(3), each)]
    expected = [(number, 1 + edited.index(each)) for number, each in enumerate(lines, 1)]
    assert pairs(ops(" ".join(lines)), ops(" ".join(edited))) == expected
