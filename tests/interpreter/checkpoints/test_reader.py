"""Reading: the last sound generation, values in pieces, and foreign files in the directory."""

from __future__ import annotations

import errno
import os
import shutil

import numpy as np
import pytest

from tensord.interpreter.checkpoints import layout
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.checkpoints.record import CheckpointLimits
from tensord.interpreter.errors import FileError, MetadataError
from tensord.interpreter.files.tensor_file import TensorFile
from tensord.interpreter.files.values import read_range
from tensord.interpreter.types.meta import Meta

from .histories import array, content_of, last, same, write


@pytest.fixture
def path(tmp_path):
    """Three generations, of a different value each."""
    with CheckpointDirectory.open(tmp_path / "c", create=True) as directory:
        for seed in (1, 2, 3):
            with directory.begin() as writer:
                write(writer, "a", array(100, seed))
                write(writer, "r", f"text {seed}")
    return tmp_path / "c"


@pytest.fixture
def reader(path):
    with CheckpointReader.open(path) as opened:
        yield opened


def test_any_generation_can_be_read(reader):
    assert reader.generations() == [1, 2, 3]
    for seed in (1, 2, 3):
        assert same(content_of(reader, reader.generation(seed)), {"a": array(100, seed), "r": f"text {seed}"})
    assert reader.latest() == (reader.generation(3), {})
    with pytest.raises(FileError, match=r"c: has no generation 4 \(the last that it has: 1, 2, 3\)"):
        reader.generation(4)


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def empty(path):
    os.truncate(path, 0)


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"\0")


def link(path):
    path.unlink()
    path.symlink_to("generation-00000001")


def folder(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def another(path):
    shutil.copy(path.with_name("generation-00000001"), path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut, "is damaged: it has .* bytes after its header, not "),
        (flip, "is damaged: it has checksum"),
        (empty, "is damaged: it has 0 bytes; was it cut short?"),
        (zero, "is damaged: it does not begin as a manifest does"),
        (lengthen, "is damaged: it has .* bytes after its header, not "),
        (link, "is not a regular file"),
        (folder, "is not a regular file"),
        (pipe, "is not a regular file"),
        (another, "is malformed: it is of generation 1, under another name"),
    ],
)
def test_the_generation_before_a_damaged_one_is_the_last_and_it_says_so(reader, path, damage, why):
    damage(path / "generation-00000003")
    found = reader.latest()
    assert found.generation == reader.generation(2)
    assert found.damaged.keys() == {3}
    with pytest.raises((FileError, MetadataError), match=f"c/generation-00000003: {why}") as caught:
        reader.generation(3)
    assert found.damaged[3] == caught.value.message
    damage(path / "generation-00000002")
    if damage is not another:
        for number in (1, 2):
            shutil.rmtree(bad) if (bad := path / f"generation-0000000{number}").is_dir() else bad.unlink()
        assert reader.latest() == (None, found.damaged)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_manifest_that_cannot_be_opened_is_an_error_and_not_an_older_generation(reader, monkeypatch, code):
    real = os.open

    def fails(name, *given, **more):
        if str(name).endswith("3"):
            raise OSError(code, os.strerror(code))
        return real(name, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        for use in (reader.latest, reader.orphans, lambda: reader.generation(3)):
            with pytest.raises(FileError, match=f"generation-00000003: cannot be opened: {os.strerror(code)}"):
                use()


def test_the_last_generation_is_found_while_they_come_and_go(path, monkeypatch):
    """The listed generation is collected before it is opened."""
    with CheckpointDirectory.open(path) as directory, CheckpointReader.open(path) as reader:
        real, left = os.open, 3

        def opens(name, *given, **more):
            nonlocal left
            if str(name).startswith("generation-") and left and more.get("dir_fd") == reader._directory:
                left -= 1
                with directory.begin() as writer:
                    write(writer, "a", array(100, left))
                directory.collect(1)
            return real(name, *given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opens)
            assert last(reader).number == 6
            left = 1 << 30
            with pytest.raises(FileError, match="its generations come and go faster than they can be read"):
                reader.latest()


def test_bytes_are_read_where_they_are_in_any_pieces(reader):
    """The needs of a deferred tensor: a descriptor, an entry, an identity."""
    record = last(reader).tensors["a"]
    fd = reader.open_values(record.file)
    try:
        file = TensorFile(fd, "a")
        entry = record.entry("a")
        target = np.empty(30, np.float32)
        read_range(file, entry, target, 4 * 50)
        assert target.tobytes() == array(100, 3)[50:80].tobytes()
        file.check_identity()
    finally:
        os.close(fd)


def test_what_is_read_whole_is_compared_with_its_checksum(reader, path):
    generation = last(reader)
    flip(path / layout.values_file(generation.routines["r"].file))
    with pytest.raises(FileError, match=r"c/values-.*: is damaged: the piece at byte 400 has checksum"):
        reader.read_text(generation.routines["r"])
    assert same({"a": reader.read("a", generation.tensors["a"])}, {"a": array(100, 3)})
    out = np.empty(100, np.float32)
    assert reader.read("a", generation.tensors["a"], out) is out


def test_a_text_that_is_no_text_is_damaged(path):
    with CheckpointDirectory.open(path) as directory:
        with directory.begin() as writer:
            record = writer.write("a", Meta.of((2,), "uint8"), b"\xff\xfe")
        with pytest.raises(FileError, match="is damaged: the text of a routine is not UTF-8"):
            directory.read_text(record._replace(meta=None))


def test_large_values_cost_nothing_until_they_are_read(tmp_path, monkeypatch):
    """A hundred GiB, none of which was ever written."""
    with CheckpointDirectory.open(tmp_path / "c", create=True) as directory:
        with directory.begin() as writer:
            record = writer.write("a", Meta.of((1,), "float64"), np.ones(1))
        generation = last(directory)
        size = 100 << 30
        os.truncate(tmp_path / "c" / layout.values_file(record.file), size)
        sparse = record._replace(meta=Meta.of((size // 8,), "float64"), nbytes=size)
        with directory.begin() as writer:
            writer.keep("a", sparse)
        read, real = [], os.preadv

        def reads(*given):
            read.append(real(*given))
            return read[-1]

        monkeypatch.setattr(os, "preadv", reads)
        generation = last(directory)
        assert generation.nbytes == size
        assert directory.verify(generation) == {}
        assert sum(read) < 1000


def test_no_file_of_values_is_looked_at_to_know_a_generation(reader, monkeypatch):
    opened, real = [], os.open

    def opens(*given, **more):
        opened.append(given[0])
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opens)
        patch.setattr(os, "stat", lambda *_, **__: pytest.fail("a file was looked at"))
        reader.latest()
    assert opened == ["generation-00000003"]


def test_readers_change_nothing(path):
    path.chmod(0o500)
    before = {entry.name: entry.stat() for entry in path.iterdir()}
    with CheckpointReader.open(path) as reader:
        reader.verify(last(reader), deep=True)
        reader.orphans()
    assert {entry.name: entry.stat() for entry in path.iterdir()} == before
    path.chmod(0o700)


def test_a_limit_of_the_reader_makes_a_generation_one_that_cannot_be_read(path):
    for limits, why in (
        (CheckpointLimits(names=1), "has 2 names; the limit is 1"),
        (CheckpointLimits(manifest=50), "the limit is 70 bytes"),
        (CheckpointLimits(text=5), "its text does not have 0 to 5 bytes"),
        (CheckpointLimits(fields=3), "its fields take 10 bytes; the limit is 3"),
    ):
        with CheckpointReader.open(path, limits=limits) as reader:
            found = reader.latest()
            assert found.generation is None
            assert all(why in reason for reason in found.damaged.values())
            assert found.damaged.keys() == {1, 2, 3}


def test_a_closed_directory_is_an_error(path):
    reader = CheckpointReader.open(path)
    reader.close()
    reader.close()
    for use in (reader.latest, reader.generations, reader.orphans):
        with pytest.raises(FileError, match="c: was closed"):
            use()
    with pytest.raises(FileError, match="generation-00000003: cannot be opened: Bad file descriptor"):
        reader.generation(3)
