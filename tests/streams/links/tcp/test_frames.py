"""Frames: packed frames are read back, and all other bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import KernelError, NodeLost, ProtocolError, TensordError
from tensord.interpreter.types.meta import DTYPES, Meta
from tensord.interpreter.wire.codec import Encoder
from tensord.streams.links.tcp import frames
from tensord.streams.links.tcp.frames import HEADER, MAX_PAYLOAD_BYTES, Frame, HeaderKind

from ....each_case import each_case

metas = st.builds(Meta.of, st.lists(st.integers(0, 9), max_size=5).map(tuple), st.sampled_from([*DTYPES.values()]))


@given(st.sampled_from(HeaderKind), st.integers(0, 1 << 63), st.binary(min_size=16, max_size=16))
def test_headers(kind, number, transfer):
    head = Frame(kind, MAX_PAYLOAD_BYTES[kind], number, transfer)
    assert Frame.of(head.header()) == head


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_any_header_is_read_or_refused(data):
    try:
        head = Frame.of(data)
    except ProtocolError:
        return
    assert head.length <= MAX_PAYLOAD_BYTES[head.kind]


@each_case("kind", list(HeaderKind))
def test_no_payload_is_longer_than_its_kind_allows(kind):
    with pytest.raises(ProtocolError, match="a frame of kind"):
        Frame.of(Frame(kind, MAX_PAYLOAD_BYTES[kind] + 1).header())


@given(metas)
def test_metas(meta):
    assert frames.read_meta(frames.meta_payload(meta)) is meta


@given(metas, st.data())
def test_small_values(meta, data):
    values = (
        data.draw(st.binary(min_size=meta.nbytes, max_size=meta.nbytes)) if meta.nbytes < 1000 else bytes(meta.nbytes)
    )
    payload = frames.small_payload(meta, values)
    assert frames.read_small(payload) == (meta, values)
    with pytest.raises(ProtocolError):
        frames.read_small(payload + b"x")


@each_case(
    "error",
    [
        NodeLost("gone"),
        KernelError("no inverse", op="inv", location="a.py:3 in f", instruction=7),
        TensordError("x" * 100_000, location="y" * 100_000),
    ],
)
def test_errors(error):
    error.__cause__ = ValueError("z" * 50_000)
    payload = frames.error_payload(error, 1 << 62)
    assert len(payload) <= MAX_PAYLOAD_BYTES[HeaderKind.FAIL]
    found, notice = frames.read_error(payload)
    assert notice == 1 << 62
    assert type(found) is type(error)
    assert (found.op, found.instruction) == (error.op, error.instruction)
    assert error.message.startswith(found.message)


@given(
    st.binary(max_size=200) | st.binary(max_size=60).map(lambda data: frames.meta_payload(Meta.of((2,), "int8")) + data)
)
def test_any_payload_is_read_or_refused(data):
    for read in (frames.read_meta, frames.read_small, frames.read_error):
        try:
            read(data)
        except ProtocolError:
            continue


@each_case(
    "fields",
    [
        [],
        ["NodeLost"],
        ["NodeLost", "x", None, None, None, None, None],
        ["NodeLost", 3, None, None, None, None],
        [3, "x", None, None, None, None],
        ["NodeLost", "x", 3, None, None, None],
        ["NodeLost", "x", None, None, "1", None],
        ["NodeLost", "x", None, None, None, "cause"],
    ],
)
def test_what_is_no_error(fields):
    with pytest.raises(ProtocolError, match="no error"):
        frames.read_error(Encoder().encode([0, fields]))
