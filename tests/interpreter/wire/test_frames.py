"""Arrays and errors as frames."""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np
import pytest

from tensord.interpreter import errors
from tensord.interpreter.errors import KernelError, ProtocolError, TensordError
from tensord.interpreter.types.meta import DTYPES
from tensord.interpreter.wire.arrays import array_of, dtype_of, name_of, strides_of
from tensord.interpreter.wire.frames import (
    ERRORS,
    FrameKind,
    decode_error,
    encode_error,
    host_identity,
)

from ...each_case import each_case


@each_case("name", DTYPES)
def test_dtypes_travel_as_their_names(name: str) -> None:
    assert name_of(np.dtype(name)) == name
    assert dtype_of(name) == np.dtype(name)


@each_case("name", ["object", "float65", "f8", ">f8", "", "M8[s]", "f4,f4", None, 8, b"float64", ("f8",)])
def test_other_dtypes_are_refused(name: Any) -> None:
    with pytest.raises(ProtocolError, match="not the name of a dtype"):
        dtype_of(name)


@each_case("shape", [(), (0,), (3,), (2, 3), (2, 0, 3), (1,) * 64])
def test_packed_bytes_are_arrays(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    found = array_of(array.tobytes(), shape, array.dtype)
    assert found.shape == shape
    assert np.array_equal(found, array)


@each_case("shape", [(2,), (0,), (2**62,), (2**62, 2**62), (2**63, 0)])
def test_so_many_bytes_are_not_an_array_of_another_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError):
        array_of(bytes(8), shape, np.dtype("float64"))


@each_case("shape", [(0, 2**62, 2**62), (0,) + (2,) * 63, (0, 2**63 - 1)])
def test_dimensions_beyond_what_numpy_counts_are_refused_without_bytes_too(shape: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="no array is a float64"):
        array_of(b"", shape, np.dtype("float64"))


def test_strides_are_told_where_they_are_not_those_of_a_packed_array() -> None:
    array = np.zeros((4, 6))
    assert strides_of(array) is None
    assert strides_of(array[::2]) == (96, 8)
    assert strides_of(array.T) == (8, 48)
    assert strides_of(array[:0].T) is None


def test_errors_keep_their_type_and_what_they_say() -> None:
    error = KernelError("it failed", op="add", location="a.py:1 in f", instruction=7)
    found = decode_error(encode_error(error))
    assert type(found) is KernelError
    assert (found.message, found.op, found.location, found.instruction) == ("it failed", "add", "a.py:1 in f", 7)


def test_every_error_of_the_public_surface_travels() -> None:
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TensordError)}
    assert set(ERRORS.values()) == kinds
    for kind in kinds:
        assert type(decode_error(encode_error(kind("x")))) is kind


class InverseError(ValueError):
    """An error of a library."""


@each_case(
    ("cause", "kind", "text"),
    [
        (ValueError("no labels"), ValueError, "no labels"),
        (InverseError("singular"), ValueError, "InverseError: singular"),
        (KeyError("a"), KeyError, "'a'"),
        (KeyboardInterrupt(), Exception, ""),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), Exception, "'utf-8' codec"),
        (OSError("x" * 5000), OSError, "x" * 1000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_the_cause_of_an_error_travels_as_a_type_of_python_s_own_and_text(
    cause: BaseException, kind: type[Exception], text: str
) -> None:
    error = KernelError("it failed")
    error.__cause__ = cause
    found = decode_error(encode_error(error)).__cause__
    assert type(found) is kind
    assert str(found.args[0]).startswith(text)
    assert len(str(found)) <= 1010


@each_case("wire", [5, "text", [], ["ValueError", "ValueError"], ["a", "b", 7], [None, None, None], {}])
def test_a_damaged_cause_is_none(wire: object) -> None:
    assert decode_error(["KernelError", "x", None, None, None, wire]).__cause__ is None


@each_case("known", ["open", "BaseException", "SystemExit", "ExceptionGroup", "no such", "__import__"])
def test_a_cause_of_no_exception_is_a_plain_one(known: str) -> None:
    found = decode_error(["KernelError", "x", None, None, None, [known, known, "text"]]).__cause__
    assert (type(found), str(found)) == (Exception, "text")


def test_an_error_of_an_unknown_type_is_a_plain_one() -> None:
    found = decode_error(["SystemExit", "from a later version", None, None, None, None])
    assert type(found) is TensordError


def test_kinds_of_the_two_directions_do_not_meet() -> None:
    assert len({int(kind) for kind in FrameKind}) == len(FrameKind)
    assert all(kind < 16 for kind in list(FrameKind)[:8])
    assert all(kind >= 16 for kind in list(FrameKind)[8:])


def test_the_host_is_what_the_page_on_the_protocol_says() -> None:
    boot, namespace, user = host_identity().split(":")
    assert len(boot) == 36
    assert int(namespace) == os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - of a link's target
    assert int(user) == os.getuid()
