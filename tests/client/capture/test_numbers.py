"""Numbers of a routine: computed anew for each run, or constants of the capture."""

from __future__ import annotations

import copy
import math
import operator
from typing import Any

import numpy as np
import pytest

import tensord as td

from ...each_case import each_case
from ..routines.compared import compared

ARITHMETIC: dict[str, Any] = {
    "neg": lambda n: -n,
    "pos": lambda n: +n,
    "abs": abs,
    "invert": lambda n: ~n,
    "add": lambda n: (n + 3, 3 + n, n + 2.5),
    "sub": lambda n: (n - 3, 3 - n),
    "mul": lambda n: (n * 3, 0.5 * n),
    "truediv": lambda n: (n / 4, 4 / n),
    "floordiv": lambda n: (n // 4, 40 // n),
    "mod": lambda n: (n % 4, 40 % n),
    "pow": lambda n: (n**2, 2**n, n**0.5),
    "and": lambda n: (n & 5, 5 & n),
    "or": lambda n: (n | 8, 8 | n),
    "xor": lambda n: (n ^ 7, 7 ^ n),
    "nested": lambda n: (n + 1) * (n - 1) / (n * n + 0.25),
}
ASKED: dict[str, Any] = {
    "bool": lambda n: 1 if n else 0,
    "int": int,
    "float": float,
    "complex": complex,
    "index": lambda n: [10, 20, 30, 40, 50, 60, 70, 80, 90][n],
    "hash": lambda n: {5: 1, 7: 2}[n],
    "str": lambda n: len(str(n)),
    "format": lambda n: len(f"{n:>9}"),
    "less": lambda n: 1 if n < 6 else 0,
    "equal": lambda n: 1 if n == 5 else 0,
    "reflected": lambda n: 1 if n >= 6 else 0,
    "range": lambda n: sum(range(n)),
    "math": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": lambda n: round(n, 1),
    "attribute": lambda n: n.bit_length(),
    "shift": lambda n: (1 << n) + (n << 1) + (n >> 1),
    "divmod": lambda n: sum(divmod(n, 3)) + sum(divmod(30, n)),
    "modular power": lambda n: pow(n, 3, 11),
    "numpy": lambda n: float(np.sqrt(n)) + float(np.float32(0.1) * n) + int(np.asarray(n)),
    "isinstance": lambda n: isinstance(n, int) + 2 * isinstance(n, float),
}


@each_case("name", ARITHMETIC)
def test_arithmetic_among_numbers_is_done_by_each_run(session, name):
    def f(x, n):
        found = ARITHMETIC[name](n)
        last = found[-1] if isinstance(found, tuple) else found
        return x * last, found

    assert compared(session, f, *[(np.arange(3.0), n) for n in (5, 3, 60, 2)]).captures == 1


@each_case("name", ASKED)
def test_a_number_that_is_asked_for_its_value_becomes_a_part_of_the_key(session, name):
    def f(x, n, lr):
        return x * ASKED[name](n) * lr

    calls = [(np.arange(3.0), n, lr) for n, lr in ((5, 0.1), (5, 0.2), (7, 0.1), (7, 0.3), (5, 0.4))]
    assert compared(session, f, *calls).captures == (1 if name == "isinstance" else 2)


def test_shapes_axes_indices_and_attributes_are_values(session):
    def f(x, n, axis):
        return x.sum(axis=axis), x.reshape((n, -1)), x[n - 1], x[0:n], session.xp.zeros((n, 2)), session.xp.arange(n)

    x = np.arange(12.0).reshape(3, 4)
    assert compared(session, f, (x, 2, 0), (x, 3, 1), (x, 2, 0)).captures == 2


def test_a_number_beside_one_that_is_asked_for_stays_free(session):
    f = session.routine(lambda x, n, lr: (x[n] * lr, n + 1))
    x = session.asarray([1.0, 2.0])
    assert [f(x, 1, lr)[0].item() for lr in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert f(x, 0, 5.0)[0].item() == 5.0
    assert f.captures == 2
    assert [each.name for each in f.program(x, 1, 2.0).numbers if each.op == "parameter"] == ["lr"]


def test_another_type_is_another_capture(session):
    f = session.routine(lambda x, n: x * n)
    x = session.asarray([1.5])
    for n in (2, 2.0, np.float32(2), np.int64(2), 2):
        assert f(x, n).tolist() == [3.0]
    assert f.captures == 4


def test_numpy_scalars_compute_by_numpys_rules(session):
    def f(x, n):
        return x * n, x * (n * 0.1), x - (1 / n), n

    calls = [(np.arange(3.0), n) for n in (np.float32(0.1), np.float32(0.7), np.float64(0.1), np.float64(0.3))]
    compared(session, f, *calls)
    only = session.routine(lambda x, n: x * n)
    x = session.asarray([1.0])
    assert [only(x, np.float32(n)).item() for n in (0.1, 0.2)] == [float(np.float32(0.1)), float(np.float32(0.2))]
    assert only.captures == 1


def test_arithmetic_of_another_type_is_captured_for_that_value(session):
    def f(x, n, lr):
        return x * (2**n) * lr, 2**n

    routine = compared(session, f, *[(np.arange(3.0), n, lr) for n, lr in ((1, 1.0), (3, 2.0), (-1, 1.0), (-1, 2.0))])
    assert routine.captures == 2


def test_an_error_of_the_arithmetic_is_raised_by_the_function_itself(session):
    @session.routine
    def f(x, n):
        x += 1
        try:
            by = 1 / n
        except ZeroDivisionError:
            by = -1.0
        return x * by * (10 // (n + 1))

    x = session.asarray([1.0])
    assert f(x, 1).tolist() == [10.0]
    assert f(x, 0).tolist() == [-30.0]
    with pytest.raises(ZeroDivisionError):
        f(x, -1)
    assert x.tolist() == [3.0]  # that call issued nothing
    assert f(x, 0).tolist() == [-40.0]
    assert f.captures == 2


def test_an_error_that_is_caught_at_the_capture_belongs_to_its_value(session):
    def f(x, n):
        try:
            return x * (1 / n)
        except ZeroDivisionError:
            return x - 1

    assert compared(session, f, (np.arange(3.0), 0), (np.arange(3.0), 4), (np.arange(3.0), 0)).captures == 2


def test_ints_are_checked_against_the_dtype_at_each_run(session):
    def f(x, n):
        return x + n

    routine = session.routine(f)
    x = session.asarray(np.array([1], np.int8))
    assert routine(x, 5).tolist() == [6]
    assert routine(x, -100).tolist() == [-99]
    for called in (f, routine):
        with pytest.raises(td.MetadataError, match="300 does not fit int8") as caught:
            called(x, 300)
        assert isinstance(caught.value, OverflowError)
        assert f":{f.__code__.co_firstlineno + 1} in" in (caught.value.location or "")
    assert routine(x, 6).tolist() == [7]
    assert routine.captures == 1


def test_a_check_that_fails_and_is_caught_belongs_to_its_value(session):
    def f(x, n):
        try:
            return x + n
        except OverflowError:
            return x - 1

    x = np.array([1], np.int8)
    compared(session, f, (x, 300), (x, 5), (x, 200), (x, 6))
    compared(session, f, (x, 5), (x, 300), (x, 6))


def test_ints_beyond_64_bits(session):
    def f(x, n):
        return x * n, x * (n * n), x + (n - n + 1), n * n

    routine = compared(session, f, *[(np.arange(3.0), n) for n in (3, 2**40, 2**70, 5)])
    assert routine.captures > 1


def test_floats_are_told_apart_to_the_last_bit(session):
    def f(x, n):
        return x + n if math.isnan(n) else x * math.copysign(1.0, n)

    calls = [(np.arange(3.0), n) for n in (0.0, -0.0, math.nan, -math.nan, 0.0, math.nan)]
    routine = compared(session, f, *calls)
    assert routine.captures <= 4


def test_bools_are_values(session):
    f = session.routine(lambda x, flag: x + 1 if flag else x - 1)
    x = session.asarray([1.0])
    assert [f(x, flag).item() for flag in (True, False, 1, 0)] == [2.0, 0.0, 2.0, 0.0]
    assert f.captures == 4


def test_complex_numbers_and_numbers_on_the_left(session):
    compared(
        session, lambda x, n: (n - x, n / x, n * x, 2**x, n + 1j), (np.arange(1.0, 4.0), 2.5 + 1j), (np.ones(3), 2j)
    )


def test_numbers_compare_with_tensors_elementwise(session):
    def f(x, n):
        return n < x, x >= n, n == x, session.xp.maximum(x, n), session.xp.where(x > n, x, n), session.xp.clip(x, -n, n)

    assert compared(session, f, (np.arange(3.0), 1.0), (np.arange(3.0), 2.0)).captures == 1


def test_fill_values_and_assigned_values_are_computed_by_the_run(session):
    def f(x, n):
        x[0] = n * 2
        x[...] = x + n
        return session.xp.full((2,), n), session.xp.full_like(x, n), session.asarray(n), session.asarray([n, 1.0])

    routine = session.routine(lambda x, n: session.xp.full((2,), n) + x[0])
    x = session.asarray(np.arange(3.0))
    assert [routine(x, n).tolist() for n in (1.0, 2.0)] == [[1.0, 1.0], [2.0, 2.0]]
    assert routine.captures == 1
    compared(session, f, (np.arange(3.0), 1.0), (np.arange(3.0), 2.0))


def test_copies_and_texts_of_a_number(session):
    seen: list[Any] = []

    def f(x, n):
        seen.append(repr(n))
        return x + copy.deepcopy(n) + copy.copy(n) + copy.deepcopy([n])[0]

    assert compared(session, f, (np.arange(3.0), 1.0), (np.arange(3.0), 2.0)).captures == 1
    assert seen[-1] == "<float of a capture>"


def test_numbers_do_not_outlive_their_capture(session):
    kept: list[Any] = []

    @session.routine
    def f(x, n):
        kept.append(n + 1)
        return x + n

    x = session.asarray([1.0])
    f(x, 1)
    for use in (operator.neg, int, str, bool, lambda n: n + 1, lambda n: x + n):
        with pytest.raises(td.CaptureError, match="has ended") as caught:
            use(kept[0])
        assert "test_numbers.py" in (caught.value.location or "")
