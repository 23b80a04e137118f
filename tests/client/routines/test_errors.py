"""Errors in routines have the same types and texts as op by op."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tensord.client.session.session import Session
from tensord.interpreter.errors import TensordError

from ...each_case import each_case

NUMBERS: list[Any] = [
    *(0, -1, 3, 127, 128, 300, -(2**31), 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, -(10**400), 1 << 5000),
    *(0.0, -0.5, 1e300, float("nan"), 1j, True, np.int64(5), np.uint64(2**64 - 1), np.float32(2.5), np.bool_(True)),
    *("text", None, [1], (), object, b"x"),
]
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64", "complex128"]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (3, 3), (0, 2)]
OPERATORS: list[Callable[[Any, Any], Any]] = [
    *(lambda x, n: x + n, lambda x, n: n - x, lambda x, n: x * n, lambda x, n: x / n, lambda x, n: n // x),
    *(lambda x, n: x % n, lambda x, n: x**n, lambda x, n: n**x, lambda x, n: x & n, lambda x, n: x << n),
    *(lambda x, n: x < n, lambda x, n: n == x, lambda x, n: x @ n, lambda x, n: x[n], lambda x, n: x.sum(axis=n)),
]

# `[1] * x` asks a tensor for the number of repetitions, which only a tensor outside of a routine may know.
REPEATED = (
    "CaptureError",
    (
        "index: a tensor has no value while a routine is captured; index with the tensor itself, or pass the number as "
        "an argument"
    ),
)


def in_place(x: Any, n: Any) -> Any:
    """A write to the whole."""
    x += n
    return x


def in_part(x: Any, n: Any) -> Any:
    """A write to a part."""
    x[0] = n
    return x


def functions(session: Session) -> list[Callable[[Any, Any], Any]]:
    """Functions that may fail for some tensor and some number, or other value."""
    xp = session.xp
    return [
        *(*OPERATORS, in_place, in_part),
        xp.reshape,
        lambda x, n: xp.full((2,), n, dtype=x.dtype),
        xp.full_like,
        lambda _, n: xp.arange(n),
        lambda x, n: xp.where(x > 0, x, n),
        lambda x, n: xp.clip(x, n, 5),
        xp.astype,
        xp.roll,
        lambda x, n: xp.concat([x, n]),
        lambda x, n: xp.linalg.cholesky(x * n),
        lambda x, n: session.call("add", [x, n]),
        lambda x, n: session.call("multiply", [x, n], out=[x]),
        lambda x, n: session.call(n, [x]),
        lambda _, n: session.asarray(n),
        lambda x, n: session.asarray([n, 1], dtype=x.dtype),
        lambda x, n: session.repeat(n, lambda y: y + 1, x) if not small(n) else x,
        lambda x, n: session.while_loop(lambda y: y.sum() < 3, lambda y: y * n, x, max_iterations=2),
        lambda x, n: session.cond(x.sum() > 0, lambda y: y + n, lambda y: y - n, x),
        lambda x, n: x.to_device(n),
        lambda _, n: session.random.uniform(n, device="cpu:0"),
    ]


def small(n: Any) -> bool:
    """Is it a number of rounds that a machine really does?"""
    return isinstance(n, int | np.integer) and bool(0 < n < 1 << 20)


def outcome(called: Callable[..., Any], x: Any, n: Any) -> tuple[str, str]:
    """The outcome of a call: the type and text of its error, also of a kernel's error, which comes with the value."""
    try:
        result = called(x, n)
        result = result[0] if isinstance(result, list) else result
        result.numpy()
    except (TensordError, TypeError, ValueError, OverflowError, ArithmeticError, LookupError, AttributeError) as error:
        return type(error).__name__, error.message if isinstance(error, TensordError) else str(error)
    return "", ""


@each_case("way", ["argument", "outside"])
@each_case("seed", range(2))
def test_an_error_in_a_routine_is_the_one_that_the_function_raises(session, seed, way):
    choice = Random(seed)
    known = functions(session)
    failed = 0
    for _ in range(60):
        function, n = choice.choice(known), choice.choice(NUMBERS)
        shape, dtype = choice.choice(SHAPES), choice.choice(DTYPES)
        found = []
        for captured in (False, True):
            x = session.asarray(np.ones(shape, dtype))
            if way == "argument":
                found.append(outcome(session.routine(function) if captured else function, x, n))
            else:
                inner = lambda y, _, f=function, n=n: f(y, n)  # noqa: E731
                found.append(outcome(session.routine(inner) if captured else inner, x, 0))
        failed += bool(found[0][0])
        expected = [found[0], REPEATED] if isinstance(n, list | tuple | str | bytes) else [found[0]]
        assert found[1] in expected, (known.index(function), shape, dtype, type(n))
    assert failed > 10


def test_an_integer_beyond_all_dtypes_is_the_same_error(session):
    x = session.asarray([1.0])
    assert outcome(session.routine(lambda x, n: x * n), x, 10**400) == (
        "MetadataOverflowError",
        "multiply: the integer (huge) has more than 64 bits",
    )


@each_case(
    ("value", "expected"),
    [
        (1.5, "setitem(int64[2], float): float values cannot be assigned to int64"),
        (10**30, f"setitem: the integer {10**30} has more than 64 bits"),
    ],
)
def test_a_write_to_all_of_a_tensor_is_named_as_a_write_to_a_part(session, value, expected):
    def f(x, index):
        x[index] = value
        return x

    for index in (..., slice(None), 0):
        for called in (f, session.routine(f)):
            with pytest.raises(TensordError) as raised:
                called(session.asarray([1, 2]), index)
            assert raised.value.message == expected
