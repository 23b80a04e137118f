"""Writing a generation: values of every kind, in pieces, kept unread, under two names; and misuse."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from tensord.interpreter.checkpoints import layout, values_writer
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.record import CheckpointLimits
from tensord.interpreter.checkpoints.repacking import LARGE_VALUE_BYTES
from tensord.interpreter.errors import FileError, MetadataError, QuotaError
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from .histories import array, content_of, last, names_of, same, small_files, write

SHAPES = [(), (0,), (3,), (2, 0, 5), (2, 3, 4), (1,) * 64]


@pytest.fixture
def directory(tmp_path):
    with CheckpointDirectory.open(tmp_path / "c", create=True) as opened:
        yield opened


def open_descriptors():
    return list(Path("/proc/self/fd").iterdir())


def meta_of(value):
    return Meta.of(value.shape, value.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_and_shape_come_back(directory, dtype):
    rng = np.random.default_rng(1)
    values = {}
    for shape in SHAPES:
        bits = np.frombuffer(rng.bytes(int(np.prod(shape)) * DTYPES[dtype].itemsize), np.uint8)
        values[str(shape)[:100]] = (bits & (1 if dtype == "bool" else 255)).view(dtype).reshape(shape)
    with directory.begin() as writer:
        for name, value in values.items():
            writer.write(name, meta_of(value), value)
    generation = last(directory)
    assert same(content_of(directory, generation), values)
    assert directory.verify(generation, deep=True) == {}
    assert generation == directory.generation(1)


def test_a_value_comes_in_any_pieces(directory, monkeypatch):
    monkeypatch.setattr(values_writer, "STEP_BYTES", 1000)
    value = array(3 * LARGE_VALUE_BYTES // 4)
    content, at = memoryview(value).cast("B"), 0
    with directory.begin() as writer:
        writer.write("whole", meta_of(value), value)
        writer.write("parts", meta_of(value), content[:5], bytearray(content[5:777]), content[777:])
        writer.start("pieces", meta_of(value))
        for size in (0, 1, 999, 1000, 1001, 5, len(content)):
            piece = content[at : at + size]
            writer.append(piece)
            at += len(piece)
    records = writer.records
    assert len({record.file for record in records.values()}) == 3, "large values have files of their own"
    assert {record.crc for record in records.values()} == {zlib.crc32(content)}
    assert all(same({"": directory.read(name, record)}, {"": value}) for name, record in records.items())


def test_what_is_committed_is_what_is_read(directory):
    with directory.begin() as writer:
        write(writer, "a", array(5))
        write(writer, "r", "def f(x): # é\n")
        write(writer, "s", "")
        generation = writer.commit()
    assert generation == last(directory) == directory.generation(1)
    assert generation.files == {
        id_: (directory.path / layout.values_file(id_)).stat().st_size for id_ in generation.files
    }
    assert directory.read_text(generation.routines["r"]) == "def f(x): # é\n"
    assert directory.read_text(generation.routines["s"]) == ""


def test_an_empty_generation_has_no_files(directory):
    generation = directory.begin().commit()
    assert (generation.tensors, generation.routines, generation.files) == ({}, {}, {})
    assert names_of(directory.path) == {"lock", "tensord-checkpoints", "generation-00000001"}


def test_what_is_kept_is_neither_read_nor_written(directory, monkeypatch):
    with directory.begin() as writer:
        write(writer, "large", array(LARGE_VALUE_BYTES))
        write(writer, "small", array(7))
        write(writer, "r", "text")
    first = last(directory)
    before = {name: (directory.path / name).stat() for name in names_of(directory.path)}
    touched = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", lambda *_: touched.append("read"))
        writer = directory.begin()
        for name, record in first.records():
            writer.keep(name, record)
        second = writer.commit()
    assert touched == []
    assert (second.tensors, second.routines, second.files) == (first.tensors, first.routines, first.files)
    assert {name: (directory.path / name).stat() for name in before} == before
    assert names_of(directory.path) - set(before) == {"generation-00000002"}


def test_a_file_of_which_much_is_kept_is_looked_at_once(directory, monkeypatch):
    with directory.begin() as writer:
        for number in range(100):
            write(writer, f"n{number}", array(1, number))
    generation = last(directory)
    opened, real = [], os.open

    def opens(*given, **more):
        opened.append(given[0])
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opens)
        with directory.begin() as writer:
            for name, record in generation.records():
                writer.keep(name, record)
    assert sum(str(name).startswith("values-") for name in opened) == 1


def test_a_value_of_two_names_is_written_once(directory):
    value = array(5)
    with directory.begin() as writer:
        record = writer.write("a", meta_of(value), value, fields={"device": "cpu:0"})
        writer.keep("b", record)
        writer.keep("c", writer.records["a"], {"device": "sim:0"})
        write(writer, "d", array(5, 1))
    generation = last(directory)
    assert generation.nbytes == sum(generation.files.values()) == 2 * value.nbytes
    assert len({generation.tensors[name].byte_range for name in "abc"}) == 1
    assert [generation.tensors[name].fields.get("device") for name in "abc"] == ["cpu:0", "cpu:0", "sim:0"]
    with directory.begin() as writer:  # less than half of the pack is needed
        writer.keep("b", generation.tensors["b"])
        writer.keep("c", generation.tensors["c"], {})
    assert last(directory).tensors["c"].fields == {}


def test_values_that_move_stay_one_under_all_their_names(directory):
    with small_files():
        with directory.begin() as writer:
            write(writer, "gone", array(12, 1))
            writer.keep("b", write(writer, "a", array(3)), {"name": "b"})
        first = last(directory)
        with directory.begin() as writer:
            writer.keep("a", first.tensors["a"])
            writer.keep("b", first.tensors["b"])
            second = writer.commit()
        assert second.tensors["a"].byte_range == second.tensors["b"].byte_range != first.tensors["a"].byte_range
        assert second.tensors["b"].fields == {"name": "b"}
        assert directory.collect(1).files == 1
        assert same(content_of(directory, second), {"a": array(3), "b": array(3)})


def test_a_damaged_value_is_not_moved_but_stays_what_it_is(directory):
    with small_files():
        with directory.begin() as writer:
            write(writer, "gone", array(12, 1))
            write(writer, "a", array(1))
            write(writer, "b", array(1, 1))
        first = last(directory)
        (id_,) = first.files
        content = bytearray((directory.path / layout.values_file(id_)).read_bytes())
        content[first.tensors["a"].offset] ^= 1
        (directory.path / layout.values_file(id_)).write_bytes(content)
        with directory.begin() as writer:
            writer.keep("a", first.tensors["a"])
            writer.keep("b", first.tensors["b"])
            second = writer.commit()
    assert second.tensors["a"] == first.tensors["a"]
    assert second.tensors["b"].byte_range != first.tensors["b"].byte_range
    assert directory.verify(second, deep=True).keys() == {"a"}


def test_files_are_flushed_a_few_at_a_time(directory, monkeypatch):
    """A thousand large values do not need a thousand descriptors."""
    most, real = 0, os.fsync

    def flush(fd):
        nonlocal most
        most = max(most, len(open_descriptors()))
        real(fd)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(values_writer, "LARGE_VALUE_BYTES", 8)
    before = len(open_descriptors())
    with directory.begin() as writer:
        for number in range(100):
            write(writer, f"n{number}", array(2, number))
    assert most - before < values_writer.FILES_PER_FLUSH + 3
    assert len(last(directory).files) == 100


# -- misuse ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [24, LARGE_VALUE_BYTES + 8])
def test_a_value_that_is_withdrawn_leaves_nothing_behind(directory, nbytes):
    small, value = array(24), array(nbytes)
    with directory.begin() as writer:
        writer.write("before", meta_of(small), small)
        writer.start("withdrawn", meta_of(value))
        writer.append(memoryview(value).cast("B")[:9])
        writer.withdraw()
        writer.write("after", meta_of(small), small)
        with pytest.raises(MetadataError, match="no value is being written"):
            writer.withdraw()
    generation = last(directory)
    assert same(content_of(directory, generation), {"before": small, "after": small})
    assert directory.verify(generation, deep=True) == {}
    assert len(generation.files) == 1


def test_a_generation_of_which_all_is_withdrawn_has_no_files(directory):
    value = array(24)
    with directory.begin() as writer:
        writer.start("withdrawn", meta_of(value))
        writer.append(memoryview(value).cast("B")[:9])
        writer.withdraw()
    assert last(directory).files == {}
    assert content_of(directory, last(directory)) == {}


def test_misuse_is_an_error_and_the_generation_goes_on(directory):
    meta = Meta.of((2,), "float64")
    with directory.begin() as writer:
        write(writer, "a", array(3))
        for name in ("", "a\n", None, "x" * 1025):
            with pytest.raises(MetadataError, match="name"):
                writer.start(name, meta)
        with pytest.raises(MetadataError, match="'a' is already there"):
            writer.routine("a", "text")
        with pytest.raises(MetadataError, match=r"'b': 15 bytes do not make a float64\[2\]"):
            writer.write("b", meta, bytes(7), bytes(8))
        with pytest.raises(ValueError, match="not contiguous"):
            writer.write("b", meta, np.zeros(4)[::2])
        with pytest.raises(MetadataError, match="half a character"):
            writer.routine("b", "\ud800")
        with pytest.raises(MetadataError, match="1 bytes where 0 are left"):
            writer.append(b"x")
        writer.start("b", meta)
        writer.append(bytes(15))
        for use in (lambda: writer.start("c", meta), lambda: writer.keep("c", writer.records["a"])):
            with pytest.raises(MetadataError, match="'b' is being written: 1 bytes are left"):
                use()
        with pytest.raises(MetadataError, match="2 bytes where 1 are left"):
            writer.append(b"xy")
        writer.append(b"\0")
    assert same(content_of(directory, last(directory)), {"a": array(3), "b": np.zeros(2)})


def test_limits_hold_when_a_generation_is_written(tmp_path):
    limits = CheckpointLimits(names=3, text=10, fields=16, manifest=200)
    with CheckpointDirectory.open(tmp_path / "c", create=True, limits=limits) as directory:
        writer = directory.begin()
        with pytest.raises(QuotaError, match="'r': a text of 11 bytes; the limit is 10"):
            writer.routine("r", "x" * 11)
        with pytest.raises(QuotaError, match="fields of 'r': take"):
            writer.routine("r", "x", {"a": "x" * 20})
        for name in "abc":
            writer.routine(name, "x" * 10)
        with pytest.raises(QuotaError, match="generation 1: has 3 names, the limit"):
            writer.routine("d", "")
        writer.commit()
        writer = directory.begin()
        writer.routine("a" * 200, "")
        with pytest.raises(QuotaError, match=r"a manifest of 2.. bytes; the limit is 200 bytes"):
            writer.commit()
        assert directory.generations() == [1]
        assert len([name for name in names_of(tmp_path / "c") if name.startswith("values-")]) == 1


def test_a_value_that_is_not_whole_ends_the_generation(directory):
    writer = directory.begin()
    writer.start("a", Meta.of((2,), "int8"))
    writer.append(b"x")
    with pytest.raises(MetadataError, match="generation 1: 1 bytes of 'a' were not written"):
        writer.commit()
    for use in (writer.commit, lambda: write(writer, "b", array(1)), lambda: writer.append(b"x")):
        with pytest.raises(FileError, match="was committed, or given up after an error; begin another one"):
            use()
    writer.abandon()
    assert names_of(directory.path) == {"lock", "tensord-checkpoints"}


def test_an_exception_abandons(directory):
    def fails():
        with directory.begin() as writer:
            write(writer, "a", array(LARGE_VALUE_BYTES))
            write(writer, "b", array(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert names_of(directory.path) == {"lock", "tensord-checkpoints"}


@each_case("damage", ["gone", "short", "link", "folder"])
def test_what_is_damaged_cannot_be_kept_and_is_written_anew(directory, damage):
    with directory.begin() as writer:
        write(writer, "a", array(3))
    record = last(directory).tensors["a"]
    path = directory.path / layout.values_file(record.file)
    if damage == "short":
        os.truncate(path, 11)
    else:
        path.unlink()
        if damage == "link":
            path.symlink_to("lock")
        elif damage == "folder":
            path.mkdir()
    with directory.begin() as writer:
        with pytest.raises(FileError, match="; write the value anew"):
            writer.keep("a", record)
        write(writer, "a", array(3))
    assert same(content_of(directory, last(directory)), {"a": array(3)})
