"""Bytes to headers and back: accepted and refused headers."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, ProtocolError
from tensord.interpreter.wire.codec import Encoder, decode

from ...each_case import each_case

LIMIT = 1 << 20
INTEGERS = st.integers(-(2**63), 2**64 - 1)
ATOMS = st.none() | st.booleans() | INTEGERS | st.floats() | st.complex_numbers() | st.text() | st.binary()
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def same(found: Any, value: Any) -> bool:
    """Equal, of equal types, and NaN is NaN."""
    return repr(found) == repr(value) and type(found) is type(value)


@given(st.lists(VALUES), st.integers(0, 127))
def test_what_is_sent_arrives(values: list[Any], kind: int) -> None:
    header = (kind, *values)
    assert same(decode(Encoder().encode(header), LIMIT), header)


def test_lists_and_tuples_arrive_as_tuples() -> None:
    assert decode(Encoder().encode([1, [2, (3,)]]), LIMIT) == (1, (2, (3,)))


def test_numbers_that_are_none_arrive() -> None:
    found = decode(Encoder().encode([1, math.nan, math.inf, -math.inf, complex(math.nan, -0.0)]), LIMIT)
    assert math.isnan(found[1])
    assert found[2:4] == (math.inf, -math.inf)
    assert math.isnan(found[4].real)
    assert math.copysign(1.0, found[4].imag) == -1.0


def test_what_is_decoded_may_be_a_view() -> None:
    assert decode(memoryview(bytearray(Encoder().encode([3, 5]))), LIMIT) == (3, 5)


@each_case(
    "value",
    [2**64, -(2**63) - 1, "\ud800", object(), {1, 2}, [[object()]], lambda: 0],
    ids=lambda value: repr(value)[:20],
)
def test_what_cannot_travel_is_a_metadata_error(value: Any) -> None:
    encoder = Encoder()
    with pytest.raises(MetadataError, match="cannot be sent to the daemon"):
        encoder.encode([1, "before", value])
    assert decode(encoder.encode([1, 2]), LIMIT) == (1, 2)  # no bytes of the failed header are left over


def nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\x90"


REFUSED = {
    "nothing": b"",
    "no array": msgpack.packb({"a": 1}),
    "a number": b"\x01",
    "an empty array": b"\x90",
    "a kind that is not a number": msgpack.packb(["x"]),
    "a kind that is a bool": b"\x91\xc3",
    "two objects": b"\x91\x01\x91\x01",
    "half of one": b"\x92\x01",
    "a reserved byte": b"\x92\x01\xc1",
    "text that is not UTF-8": b"\x92\x01\xa1\xff",
    "text with a surrogate": b"\x92\x01\xa3\xed\xa0\x80",
    "a key that is a number": b"\x92\x01\x81\x01\x01",
    "a key that is a list": b"\x92\x01\x81\x90\x01",
    "an ext type": msgpack.packb([1, msgpack.ExtType(2, bytes(16))]),
    "a short complex number": msgpack.packb([1, msgpack.ExtType(1, bytes(8))]),
    "a large ext": msgpack.packb([1, msgpack.ExtType(1, bytes(17))]),
    "a timestamp of five bytes": b"\x92\x01\xc7\x05\xff12345",
    "an array beyond the frame": b"\xdd\xff\xff\xff\xff\x01",
    "a map beyond the frame": b"\x92\x01\xdf\xff\xff\xff\xff",
    "text beyond the frame": b"\x92\x01\xdb\xff\xff\xff\xff",
    "bytes beyond the frame": b"\x92\x01\xc6\xff\xff\xff\xff",
    "ext beyond the frame": b"\x92\x01\xc9\xff\xff\xff\xff\x01",
    "nested beyond the stack": nested(5000),
}


@each_case("frame", REFUSED.values(), ids=REFUSED)
def test_what_is_no_header_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(frame, LIMIT)
    assert len(caught.value.message) < 200


def test_a_header_over_the_limit_is_not_looked_at() -> None:
    frame = b"\x91\x01" + b"\xc1" * 100
    with pytest.raises(ProtocolError, match="a header of 102 bytes; 101 are allowed"):
        decode(frame, 101)


@each_case("claim", [b"\xdd\x7f\xff\xff\xff", b"\xdd\x00\xff\xff\xff", b"\xdf\x00\xff\xff\xff"])
def test_a_length_that_lies_costs_no_memory(claim: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(b"\x92\x01" + claim, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
