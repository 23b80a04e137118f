"""Fields come back as they were; a record is an entry of a file."""

from __future__ import annotations

import pytest

from tensord.interpreter.checkpoints.record import (
    CheckpointLimits,
    Generation,
    ValueRecord,
    check_record_names,
    pack_fields,
)
from tensord.interpreter.errors import MetadataError, QuotaError
from tensord.interpreter.files.header import FilePiece, TensorEntry
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

LIMITS = CheckpointLimits(name=8, fields=64)


@each_case(
    "fields",
    [{}, {"device": "cpu:0"}, {"a": None, "b": [1, 2.5, b"x"], "c": {"d": 2 + 3j}}, {"deep": [[[[[[[[1]]]]]]]]}],
)
def test_fields_come_back_with_tuples_for_lists(fields):
    def plain(value):
        if isinstance(value, list):
            return tuple(map(plain, value))
        return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value

    assert ValueRecord(None, 1, 0, 0, 0, pack_fields("a", fields, LIMITS)).fields == plain(fields)


@each_case("fields", [{"a": object()}, {"a": 2**64}, {"a": {1: 2}}, {1: 2}, {"a": "\ud800"}])
def test_fields_are_values_of_msgpack_by_name(fields):
    with pytest.raises(MetadataError, match=r"^fields of 'x': "):
        pack_fields("x", fields, LIMITS)


def test_fields_are_limited():
    with pytest.raises(QuotaError, match="fields of 'x': take 70 bytes; the limit is 64"):
        pack_fields("x", {"a": "b" * 63}, LIMITS)


@each_case("packed", [b"\x00", b"\x92\x00\x01", b"\x92\x01\x80", b"\x92\x00\x81\xc4\x01a\x01", b"\xff" * 9])
def test_malformed_fields_are_an_error_when_they_are_asked_for(packed):
    with pytest.raises(MetadataError, match=r"^malformed fields: "):
        _ = ValueRecord(None, 1, 0, 0, 0, packed).fields


@each_case("name", ["", " ", "a\n", "\ud800", 1, None, b"a", "123456789"])
def test_names_are_printable_and_not_too_long(name):
    with pytest.raises(MetadataError, match="name"):
        check_record_names((name,), LIMITS)


def test_a_record_is_an_entry_of_its_file():
    meta = Meta.of((2, 3), "float32")
    record = ValueRecord(meta, 7, 100, 24, 99)
    assert record.entry("a") == TensorEntry("a", meta, FilePiece(100, 24, 24, crc=99))
    assert record.entry("a").is_direct
    assert ValueRecord(None, 7, 100, 24, 99).entry("r").meta is Meta.of((24,), "uint8")


def test_values_of_two_names_count_once():
    one, other = ValueRecord(None, 1, 0, 5, 9), ValueRecord(Meta.of((5,), "int8"), 1, 5, 5, 9)
    generation = Generation(1, 0, {"a": other, "b": other._replace(packed=b"x")}, {"r": one}, {1: 10})
    assert generation.nbytes == 10
    assert dict(generation.records()).keys() == {"a", "b", "r"}
