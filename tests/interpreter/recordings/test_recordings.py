"""Recordings as files: they read back unchanged, and no byte of them is trusted."""

from __future__ import annotations

import json
import random
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.recordings.chunks import head_line, pack
from tensord.interpreter.recordings.entries import (
    ANSWER,
    BEGIN,
    FINISH,
    LOST,
    MESSAGE,
    NOTE,
    PIECE,
    TRACE,
    VALUE,
    EntryKind,
    decode_entry,
)
from tensord.interpreter.recordings.reader import RecordingReader
from tensord.interpreter.recordings.writer import RecordingWriter
from tensord.interpreter.wire.codec import Encoder

from ...full_disk import longest_file

HEAD = {"devices": ["cpu:0"]}
X = np.arange(6, dtype=np.float32).reshape(2, 3)
ENTRIES = [
    (BEGIN, 1, "train.py", False, 0),
    (VALUE, 1, "float32", (2, 3), X.nbytes),
    (PIECE, 1, X.tobytes()[:10]),
    (PIECE, 1, X.tobytes()[10:]),
    (MESSAGE, 1, 5, (2, 1, (2, 3), "float32", "cpu:0", None, 0), (1,)),
    (ANSWER, 1, 7, 1, None),
    (NOTE, "something"),
]


def written(path, entries=ENTRIES, head=HEAD, *, finish=True):
    with RecordingWriter(path, head) as writer:
        for entry in entries:
            writer.put(*entry)
        if finish:
            writer.finish({"full": False})
    return path


def raw(path, *entries, head=None):
    """A file of these entries, unchecked."""
    encode = Encoder().encode
    path.write_bytes((head or head_line(HEAD)) + b"".join(pack(encode(entry)) for entry in entries))
    return path


def test_what_is_written_is_read(tmp_path):
    with RecordingReader(written(tmp_path / "x.rec")) as reader:
        assert reader.head["devices"] == ["cpu:0"]
        assert "holds data" in reader.head["holds"]
        assert [entry for entry in reader.entries() if entry[0] != FINISH] == [e for e in ENTRIES if e[0] != PIECE]
        value = reader.value(1)
        assert value is not None
        assert np.array_equal(value, X)
        assert (reader.messages, reader.sessions, reader.notes) == (1, {1: "train.py"}, ["something"])
        assert reader.answers[1, 7].value == 1
        assert (reader.ended, reader.nbytes()) == ("", X.nbytes)


def test_only_its_owner_may_read_it(tmp_path):
    assert written(tmp_path / "x.rec").stat().st_mode & 0o077 == 0


def test_a_value_that_is_taken_out_again_leaves_no_byte(tmp_path):
    with RecordingWriter(tmp_path / "x.rec", HEAD) as writer:
        writer.put(VALUE, 1, "float32", (2, 3), X.nbytes)
        offset = writer.add(Encoder().encode((PIECE, 1, X.tobytes())))
        writer.put(NOTE, "behind it")
        writer.blank(1, "left out", [(offset, X.nbytes)])
        writer.finish({})
    assert X.tobytes()[4:] not in (tmp_path / "x.rec").read_bytes()
    with RecordingReader(tmp_path / "x.rec") as reader:
        assert (reader.value(1), reader.lost, reader.notes) == (None, {1: "left out"}, ["behind it"])


def test_the_trace_is_read_from_its_pieces(tmp_path):
    text = b"line\n" * 200_000
    path = written(tmp_path / "x.rec", finish=False)
    with (tmp_path / "trace").open("wb+") as trace, RecordingWriter(path, HEAD) as writer:
        trace.write(text)
        trace.seek(0)
        writer.add_trace(trace)
        writer.finish({})
    with RecordingReader(path) as reader:
        assert reader.has_trace
        assert reader.trace().read() == text


def fill(path):
    with RecordingWriter(path, HEAD) as writer:
        for _ in range(100):
            writer.put(NOTE, "text" * 10)


def test_a_full_disk_is_named_and_what_is_there_can_be_read(tmp_path):
    path = tmp_path / "x.rec"
    with longest_file(600), pytest.raises(OSError, match=r"x\.rec"):
        fill(path)
    with RecordingReader(path) as reader:
        assert reader.notes
        assert "last entry is missing" in reader.ended


def test_wherever_it_is_cut_it_is_read_up_to_there_or_refused(tmp_path):
    whole = written(tmp_path / "x.rec").read_bytes()
    start = whole.index(b"\n") + 1
    path = tmp_path / "cut.rec"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length < start:
            with pytest.raises(ProtocolError, match="not a recording"):
                RecordingReader(path)
            continue
        with RecordingReader(path) as reader:
            assert reader.ended
            for number in reader.values:
                try:
                    value = reader.value(number)
                    assert value is not None
                    assert np.array_equal(value, X)
                except ProtocolError as error:
                    assert "said to have" in error.message  # noqa: PT017 - or it is there


def test_no_byte_can_be_changed_unnoticed(tmp_path):
    whole = written(tmp_path / "x.rec").read_bytes()
    start = whole.index(b"\n") + 1
    rng = random.Random(3)
    path = tmp_path / "changed.rec"
    changes = [(offset, rng.randrange(256)) for offset in range(start, len(whole))]
    kinds = [(start + 9, kind) for kind in EntryKind]  # of the first entry
    for offset, value in (*changes, *kinds):
        if whole[offset] == value:
            continue
        path.write_bytes(whole[:offset] + bytes([value]) + whole[offset + 1 :])
        try:
            with RecordingReader(path) as reader:
                found = [reader.value(1), list(reader.entries())]
                assert reader.ended, f"{offset}: {found}"  # a length that leads beyond the end
        except (ProtocolError, KeyError) as error:
            assert "changed.rec" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ((99,), "no entries of kind 99"),
        ((BEGIN, 1, "name"), "a damaged BEGIN entry"),
        ((MESSAGE, -1, 0, (), ()), "a damaged MESSAGE entry"),
        ((MESSAGE, 1, 0, (), ("x",)), "a damaged MESSAGE entry"),
        ((VALUE, 1, "float32", (1 << 62,) * 65, 4), "a damaged VALUE entry"),
        ((ANSWER, 1, 2, 3, ("KernelError",)), "a damaged ANSWER entry"),
        ((PIECE, 1, b"bytes"), "a piece of no value"),
        ("text", "a header is an array"),
    ],
)
def test_a_damaged_entry_is_refused_with_the_files_name(tmp_path, entry, said):
    path = raw(tmp_path / "x.rec", entry)
    with pytest.raises(ProtocolError, match=rf"x\.rec: .*{said}"):
        RecordingReader(path)


@pytest.mark.parametrize(
    "claim",
    [("float32", (1 << 40,), 1 << 42), ("float32", (3,), 1 << 62), ("object", (2,), 16), ("float32", (2, 4), 24)],
)
def test_a_value_that_lies_about_its_size_costs_no_memory(tmp_path, claim):
    path = raw(tmp_path / "x.rec", (VALUE, 1, *claim), (PIECE, 1, X.tobytes()))
    tracemalloc.start()
    try:
        with RecordingReader(path) as reader, pytest.raises(ProtocolError, match=r"x\.rec"):
            reader.value(1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_length_beyond_the_file_or_beyond_any_entry_is_not_believed(tmp_path):
    path = raw(tmp_path / "x.rec", (NOTE, "first"))
    path.write_bytes(path.read_bytes() + b"\xff\xff\xff\x7f" + bytes(4))
    with RecordingReader(path) as reader:
        assert reader.notes == ["first"]
        assert "cut short" in reader.ended


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"", "not a recording"),
        (b"\x80\x04.", "not a recording"),
        (b'{"format": "tensord-trace"}\n', "not a recording"),
        (b"{" + b'"a":' * 30_000 + b"\n", "not a recording"),
        (json.dumps({"format": "tensord-recording", "version": 9}).encode() + b"\n", "a recording of version 9"),
        (json.dumps({"format": "tensord-recording", "version": 1}).encode() + b"\n", "does not name the devices"),
    ],
)
def test_another_file_or_version_is_refused(tmp_path, head, said):
    path = tmp_path / "x.rec"
    path.write_bytes(head)
    with pytest.raises(ProtocolError, match=said):
        RecordingReader(path)


def test_random_bytes_are_refused_or_noticed():
    rng = random.Random(5)
    encode = Encoder().encode
    for _ in range(500):
        body = bytearray(encode(rng.choice(ENTRIES)))
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        with suppress(ProtocolError):
            assert decode_entry(bytes(body))[0] in set(EntryKind)


def test_a_large_recording_is_looked_through_without_reading_its_values(tmp_path):
    """Values of 1 GiB in a sparse file: only the heads of their pieces are read."""
    path = tmp_path / "x.rec"
    piece = 1 << 21
    entry = Encoder().encode((PIECE, 1, b""))
    with path.open("wb") as file:
        file.write(head_line(HEAD) + pack(Encoder().encode((VALUE, 1, "uint8", (512 * piece,), 512 * piece))))
        for _ in range(512):
            file.write((len(entry) + piece).to_bytes(4, "little") + bytes(4) + entry)
            file.seek(piece, 1)
        file.truncate(file.tell())
    tracemalloc.start()
    try:
        with RecordingReader(path) as reader:
            assert len(reader.values[1].pieces) == 512
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_lost_value_is_none(tmp_path):
    with RecordingReader(written(tmp_path / "x.rec", [*ENTRIES, (LOST, 1, "no room"), (TRACE, b"")])) as reader:
        assert (reader.value(1), reader.value(2)) == (None, None)
