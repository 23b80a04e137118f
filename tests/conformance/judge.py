"""The expected result of a call, by array_api_strict and NumPy, and the comparison with ours.

array_api_strict has the first word: a call that it takes, we take, with the same dtype and shape, bit for bit. It also
refuses calls that the standard leaves open. There NumPy decides, which also knows float16; except that dtypes of
different kinds do not mix, and where a table's entry says otherwise. A call that both refuse, we refuse with an error
of one of their classes, at the call, unless data decide.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.exceptions import ComplexWarning

from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.errors import KernelError

from ..equality import is_all_open, is_on_gpu, may_give_a_value, why_unequal
from .calls import DEVICE, NUMPY, STRICT, Call, Host, fetched, find, form, host, leaves, make, ours, quietly
from .rules import Operands, Rule, mixing, nothing

# The classes that users catch. NumPy's AxisError is two of them, its LinAlgError is a ValueError.
CLASSES = (TypeError, IndexError, OverflowError, ValueError, AttributeError, BufferError)
FEW = 4  # units in the last place
TAKERS = {"asarray", "from_dlpack"}  # arrays are their arguments
# Operators, and the ops behind them.
OPS = {
    **{each: each for each in ("add", "abs", "matmul", "multiply", "pow", "remainder", "subtract")},
    "mod": "remainder",
    "mul": "multiply",
    "neg": "negative",
    "pos": "positive",
    "sub": "subtract",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}


def itself(result: Any) -> Any:
    """The result."""
    return result


@dataclass(frozen=True)
class Entry:
    """A function's row in a table.

    Calls. `calls` draws arguments. `operates`: the operator to call, where no namespace has the function. `promotes`:
    the arguments that promote to one dtype, by position or keyword. `forbids`: the error that the standard's text
    demands for a call, even if a reference takes it. `late`: data may be at fault, so the error comes with the value.

    References. `numpy`: decides on calls that array_api_strict refuses, by default NumPy's function of the same name;
    None: we refuse them as well. `text`: decides alone, where both depart from the standard's text.

    Comparison. `ulps`: how far floating-point results may be off, in units of the largest one's last place, where the
    order of operations is free. `loosely`: complex results count where they are finite, up to a few such units.
    `signed_zeros`: whether a zero's sign counts. `seen`: the part to compare of a result that is no tensor.
    """

    calls: st.SearchStrategy[Call]
    operates: Callable[..., Any] | None = None
    promotes: Operands = ()
    forbids: Rule = nothing
    late: bool = False
    numpy: Callable[..., Any] | str | None = "same"
    text: Callable[..., Any] | None = None
    ulps: int = 0
    loosely: bool = False
    signed_zeros: bool = True
    seen: Callable[[Any], Any] = itself


@dataclass(frozen=True)
class Refusal:
    """The call raises an error of one of these classes."""

    classes: tuple[type[Exception], ...]
    why: str


def check(session: Session, device: str, name: str, entry: Entry, made: Call) -> Any:
    """Our function gives the expected result, and a refusal at once. Returns the expected result."""
    expected, side = expect(name, entry, made), ours(session, device)
    function = entry.operates or find(side.namespace, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ComplexWarning)
            result = make(function, made, side)
    except Exception as error:
        assert_refused(expected, error)
        return expected
    try:
        found = fetched(session, leaves(result))
    except KernelError as error:
        assert_refused(expected if entry.late else "at the call", error)
        return expected
    if is_placed(made):
        assert {leaf.device for leaf in leaves(result) if isinstance(leaf, Tensor)} <= {device}
    if isinstance(expected, Refusal) and is_on_gpu(device) and may_give_a_value(expected.why):
        return expected
    assert not isinstance(expected, Refusal), f"taken, though refused elsewhere: {expected.why}"
    assert_equal(found, result, expected, entry, same_on_gpu(name, made) if is_on_gpu(device) else assert_same)
    return expected


def check_arrays_are_refused(session: Session, name: str, entry: Entry, made: Call) -> None:
    """No function takes an array of NumPy's for a tensor: that would be an implicit copy."""
    has_tensors = any(isinstance(each, np.ndarray) for each in leaves([*made.args, *made.kwargs.values()]))
    if not has_tensors or entry.operates is not None or name in TAKERS:
        return
    arrays = Call(untaken(made.args), {key: untaken(value) for key, value in made.kwargs.items()})
    with pytest.raises(TypeError):
        make(find(session.xp, name), arrays, ours(session, "cpu:0"))


def untaken(value: Any) -> Any:
    """The argument, with a NumPy array in place of each tensor."""
    if isinstance(value, np.ndarray):
        return Host(value)
    return type(value)(map(untaken, value)) if isinstance(value, list | tuple) else value


def is_placed(made: Call) -> bool:
    """Do the arguments say on which device the results are?"""
    return any(each is DEVICE or isinstance(each, np.ndarray) for each in leaves([*made.args, *made.kwargs.values()]))


def expect(name: str, entry: Entry, made: Call) -> Any:
    """The expected result of a call, or its Refusal."""
    errors = [error for error in (entry.forbids(made), mixing(made, entry.promotes)) if error is not None]
    forbidden = bool(errors)
    for judge in judges(name, entry):
        try:
            result = quietly(judge, made)
        except Exception as error:
            errors.append(error)
        else:
            if not forbidden:
                return result
    classes = tuple(c for c in CLASSES if any(isinstance(error, c) for error in errors))
    return Refusal(classes, "; ".join(map(repr, errors)))


def judges(name: str, entry: Entry) -> Iterable[Callable[[Call], Any]]:
    """The references to ask, one after the other."""
    if entry.text is not None:
        return [partial(make, entry.text, side=NUMPY)]
    strict = partial(make, entry.operates or find(STRICT.namespace, name), side=STRICT)
    if entry.numpy is None:
        return [strict]
    numpy = (entry.operates or find(np, name)) if isinstance(entry.numpy, str) else entry.numpy
    return [strict, partial(make, numpy, side=NUMPY)]


def assert_refused(expected: Any, error: Exception) -> None:
    """The error is one that the refusal allows."""
    is_refusal = isinstance(expected, Refusal)
    allowed = is_refusal and isinstance(error, expected.classes)
    if not allowed:
        raise AssertionError(f"{type(error).__name__} instead of {expected.why if is_refusal else expected}") from error


def assert_equal(
    found: list[Any],
    result: Any,
    expected: Any,
    entry: Entry,
    same: Callable[[Any, np.ndarray, Entry], None] | None = None,
) -> None:
    """The results have the same structure and are equal in shape, dtype and values, by `same`."""
    wanted = [host(leaf) for leaf in leaves(expected)]
    if any(leaf is not value for leaf, value in zip(leaves(expected), wanted, strict=True)):  # from array_api_strict
        assert form(result) == form(expected)
    assert len(found) == len(wanted)
    for ours_, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, np.ndarray):
            (same or assert_same)(ours_, theirs, entry)
        else:
            assert type(ours_) is type(theirs) or entry.seen is not itself
            assert entry.seen(ours_) == entry.seen(theirs)


def assert_same(actual: Any, expected: np.ndarray, entry: Entry) -> None:
    """Equal in shape, dtype and values, as far as they count; all NaNs are one."""
    assert isinstance(actual, np.ndarray), f"{actual!r} is no tensor"
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    ulps = entry.ulps
    if entry.loosely and expected.dtype.kind == "c":
        counts, ulps = np.isfinite(expected), FEW
        actual, expected = actual[counts], expected[counts]
    if ulps and expected.dtype.kind in "fc":
        assert_close(actual, expected, ulps)
        return
    np.testing.assert_array_equal(actual, expected)
    assert not entry.signed_zeros or np.array_equal(signs(actual), signs(expected)), f"signs: {actual} and {expected}"


def same_on_gpu(name: str, made: Call) -> Callable[[Any, np.ndarray, Entry], None]:
    """`assert_same`, or equality for a GPU as in `tests/equality.py`."""
    op = OPS.get(name, name.rpartition(".")[2])
    given = [*made.args, *made.kwargs.values()]
    operands = [x for x in made.args if isinstance(x, np.ndarray | int | float | complex)]
    dtypes = [x.name for x in given if isinstance(x, np.dtype)]
    attributes = {"dtype": dtypes[0]} if dtypes else {}

    def same(actual: Any, expected: np.ndarray, entry: Entry) -> None:
        try:
            assert_same(actual, expected, entry)
        except AssertionError:
            if not isinstance(actual, np.ndarray) or (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
                raise
            if entry.ulps and not is_all_open(op, [*operands, expected]):
                raise
            zero = expected.dtype.type(0)
            if not entry.signed_zeros and expected.dtype.kind in "fc":
                actual, expected = actual + zero, expected + zero
            wrong = "" if entry.ulps else why_unequal(op, actual, expected, operands, attributes)
            if wrong:
                raise AssertionError(wrong) from None

    return same


def assert_close(actual: np.ndarray, expected: np.ndarray, ulps: int) -> None:
    """Equal up to units of the largest finite result's last place."""
    finite = np.abs(expected[np.isfinite(expected)]).astype(np.float64)
    rtol = ulps * float(np.finfo(expected.dtype).eps)
    largest = min(float(np.max(finite, initial=0.0)), np.finfo(np.float64).max)
    np.testing.assert_allclose(actual, expected, rtol, rtol * largest)


def signs(array: np.ndarray) -> np.ndarray:
    """Where a sign is negative; NaNs have none."""
    if array.dtype.kind == "c":
        return np.stack([signs(array.real), signs(array.imag)])
    return np.signbit(array) & ~np.isnan(array) if array.dtype.kind == "f" else np.zeros(0)
