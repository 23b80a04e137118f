"""The notation of the tables of special cases, and how results are held to them.

A table is text with one rule per line, `operands -> results`. Both are words; one of a complex number has two, its real
and its imaginary part. `#` starts a comment.

Operands, each of which stands for one value or several:
    nan  +nan  -nan          any NaN; NaNs with that sign bit
    +inf -inf  ±inf  +0 -0 ±0  2.5   these values, `±` for either sign
    finite nonzero positive negative whole   finite numbers; integer-valued ones
    any notnan               all there are; all but NaN
    >1 <=0 |>1| |<1| !=1     all that compare so, infinities among them; by magnitude
    odd>0 other<0            odd integers of that sign; the others, which are infinite, even or not integers

Results:
    nan  +nan -nan           a NaN; one with that sign bit
    +0 -0  1  -inf  0 inf    that value with that sign, plus where none is given
    ±0 ±inf ±pi/2            of unspecified sign
    +  -                     anything with that sign bit but NaN
    ~pi/2 ~-3pi/4 ~2         to the precision of the dtype
    any                      whatever it is
    x1 |x1| -|x1| x2 ...     an operand (a, b of a complex one), its magnitude
    inf*cos(b) 0*sin(b)      of the sign of the function's value
    true false
    (anything else)          an expression of the operands, for Python
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..equality import OF_TABLES, least
from ..stand_in import is_cuda

INF, NAN = math.inf, math.nan
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
PARTS = {"complex64": "float32", "complex128": "float64"}

# The ways to compare a value.
EXACT, NEAR, MAGNITUDE, SIGN, SIGNED_NAN, ANYTHING = range(6)
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_NEAR = {"pi": math.pi, "pi/2": math.pi / 2, "pi/4": math.pi / 4, "3pi/4": 3 * math.pi / 4}


class Result(NamedTuple):
    """An expected value, and the way to compare it."""

    value: float
    how: int = EXACT

    def __neg__(self) -> Result:
        return Result(-self.value, self.how)


class Case(NamedTuple):
    """One call on single numbers: the values of the operands, the expected value, and the line of the table."""

    operands: tuple[float, ...]
    results: tuple[Result, ...]
    line: str


# --- values


def finite_values(dtype: str) -> list[float]:
    """Interesting finite numbers, each representable in the real dtype."""
    limits = np.finfo(dtype)
    positive = [float(least(dtype, gpu=is_cuda())), 0.5, 1.0, 1.5, 2.0, 3.0, float(limits.max)]
    return [0.0, -0.0, *positive, *(-v for v in positive)]


def values_of(word: str, dtype: str) -> list[float]:
    """The values that an operand's word stands for."""
    finite = finite_values(dtype)
    everything = [*finite, INF, -INF, NAN]
    if word in _CLASSES:
        return [v for v in everything if _CLASSES[word](v)]
    if word.lstrip("+-") == "nan":
        return [math.copysign(NAN, -1.0 if word[0] == "-" else 1.0)]
    if found := re.fullmatch(r"(\|?|odd|other)([<>!]=?)([-\d.]+)\|?", word):
        kind, sign, bound = found.groups()
        keep = _COMPARISONS[sign]
        chosen = [v for v in everything if keep(abs(v) if kind == "|" else v, float(bound))]
        if kind in {"odd", "other"}:
            return [v for v in chosen if math.isfinite(v) and (v % 2 == 1) == (kind == "odd")]
        return chosen
    if word[0] == "±":
        return [float(word[1:]), -float(word[1:])]
    return [float(word)]


_CLASSES: dict[str, Callable[[float], bool]] = {
    "any": lambda _: True,
    "notnan": lambda v: not math.isnan(v),
    "finite": math.isfinite,
    "nonzero": lambda v: math.isfinite(v) and v != 0,
    "positive": lambda v: math.isfinite(v) and v > 0,
    "negative": lambda v: math.isfinite(v) and v < 0,
    "whole": lambda v: math.isfinite(v) and v == math.floor(v),
}


def result_of(word: str, names: dict[str, float]) -> Result:
    """The meaning of a result's word, given the operands by name."""
    if word in {"true", "false"}:
        return Result(float(word == "true"))
    if word in {"+nan", "-nan"}:
        return Result(math.copysign(NAN, float(word[0] + "1")), SIGNED_NAN)
    if word in {"+", "-"}:
        return Result(float(word + "1"), SIGN)
    if word[0] == "±":
        return Result(_NEAR.get(word[1:]) or float(word[1:]), MAGNITUDE)
    if word[0] == "~":
        number = word[1:].lstrip("-")
        value = _NEAR.get(number) or float(number)
        return Result(-value if word[1] == "-" else value, NEAR)
    if word == "any":
        return Result(0.0, ANYTHING)
    if found := re.fullmatch(r"(-?)(inf|0)\*(cos|sin)\(b\)", word):
        minus, magnitude, function = found.groups()
        value = math.copysign(float(magnitude), getattr(math, function)(names["b"]))
        return Result(-value if minus else value)
    try:
        return Result(float(word))
    except ValueError:
        word = re.sub(r"\|(.*?)\|", r"abs(\1)", word)
        return Result(float(eval(word, {"__builtins__": {}, "abs": abs, "math": math}, names)))  # noqa: S307 - our own tables


# --- tables


@functools.cache
def cases_of(table: str, dtype: str) -> list[Case]:
    """All cases of a table for a dtype; `dtype` is that of the parts, for complex numbers."""
    cases = [list(_expand(line, dtype)) for line in lines_of(table)]
    assert all(cases), "a rule without a case"
    return list(itertools.chain.from_iterable(cases))


def lines_of(table: str) -> Iterator[str]:
    """The rules of a table, without comments."""
    for line in table.splitlines():
        if rule := line.partition("#")[0].strip():
            yield rule


def _expand(line: str, dtype: str) -> Iterator[Case]:
    left, _, right = line.partition("->")
    for values in itertools.product(*(values_of(word, dtype) for word in left.split())):
        names = {f"x{n}": value for n, value in enumerate(values, 1)}
        names.update(zip("abcd", values, strict=False))
        yield Case(values, tuple(result_of(word, names) for word in right.split()), line)


# --- symmetries of complex functions, by which the standard's tables state one half or quarter of the plane only


def _conjugate(case: Case) -> Case:
    (a, b), (real, imag) = case.operands, case.results
    return Case((a, -b), (real, -imag), f"{case.line}  (conjugate)")


def _negate(case: Case) -> Case:
    (a, b), (real, imag) = case.operands, case.results
    return Case((-a, -b), (-real, -imag), f"{case.line}  (odd)")


def _mirror(case: Case) -> Case:
    (a, b), results = case.operands, case.results
    return Case((-a, -b), results, f"{case.line}  (even)")


def symmetric(cases: list[Case], parity: str = "") -> list[Case]:
    """With the cases of the conjugate, and of the negative for an "odd" or "even" function."""
    if parity:
        cases = cases + list(map({"odd": _negate, "even": _mirror}[parity], cases))
    return cases + list(map(_conjugate, cases))


def turned(cases: list[Case], *, back: bool) -> list[Case]:
    """The cases of z -> f(jz), or of z -> -j f(jz) if `back`, by those of f."""
    return [_turn(case, back=back) for case in cases]


def _turn(case: Case, *, back: bool) -> Case:
    (a, b), (real, imag) = case.operands, case.results
    return Case((b, -a), (imag, -real) if back else (real, imag), f"{case.line}  (of x*1j)")


# --- comparison


def column(cases: Iterable[Case], position: int, dtype: str) -> np.ndarray:
    """The values of one operand."""
    return np.array([case.operands[position] for case in cases], dtype)


def complex_column(cases: Iterable[Case], position: int, dtype: str) -> np.ndarray:
    """The values of a complex operand, whose parts are the operands 2 * position and the next one."""
    return join([c.operands[2 * position : 2 * position + 2] for c in cases], dtype)


def join(parts: Sequence[tuple[float, ...]], dtype: str) -> np.ndarray:
    """Complex numbers of these parts; adding them up would spread NaN and lose the sign of zeros."""
    return np.array(parts, PARTS[dtype]).reshape(-1, 2).view(dtype)[:, 0]


def parts_of(array: np.ndarray) -> list[np.ndarray]:
    """Real and imaginary part, or just the array."""
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def failures(cases: list[Case], found: np.ndarray, *, rounded: bool = False) -> list[str]:
    """The differences from the expected results, as sentences. The cases may have been called several times over.

    `rounded`: finite numbers other than zero count to the precision of the dtype, as those of a GPU do
    (tests/equality.py).
    """
    copies = len(found) // len(cases)
    assert found.shape == (copies * len(cases),)
    parts = parts_of(found)
    good = np.ones(len(found), np.bool_)
    for position, part in enumerate(parts):
        good &= _agree(part, [case.results[position] for case in cases], copies, rounded=rounded)
    return [_sentence(cases[i % len(cases)], [part[i] for part in parts]) for i in np.flatnonzero(~good)]


@np.errstate(all="ignore")
def _agree(found: np.ndarray, results: list[Result], copies: int, *, rounded: bool) -> np.ndarray:
    how, value = (np.tile(each, copies) for each in (np.array([r.how for r in results]), [r.value for r in results]))
    precision = OF_TABLES * np.finfo(found.dtype).eps if found.dtype.kind == "f" else 0.0
    exact = value.astype(found.dtype) if found.dtype.kind == "f" else value
    found = found.astype(np.float64)
    same_sign = np.signbit(found) == np.signbit(value)
    both_nan = np.isnan(found) & np.isnan(value)
    plain = rounded & np.isfinite(value) & (value != 0)
    near = plain & (np.abs(found - value) <= precision * np.abs(value))
    return np.select(
        [how == NEAR, how == MAGNITUDE, how == SIGN, how == SIGNED_NAN, how == ANYTHING],
        [
            np.abs(found - value) <= precision * np.abs(value),
            both_nan | (np.abs(found) == np.abs(exact)) | (_distance(found, value) <= precision * np.abs(value)),
            same_sign & ~np.isnan(found),
            both_nan & same_sign,
            np.ones(found.shape, np.bool_),
        ],
        default=both_nan | (same_sign & (found == exact)) | near,
    )


def _distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.abs(np.abs(one) - np.abs(other))


def _sentence(case: Case, found: list[Any]) -> str:
    got = " ".join(repr(float(part)) for part in found)
    return f"{' '.join(map(repr, case.operands))} gives {got}, against: {case.line}"
