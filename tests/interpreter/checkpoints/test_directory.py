"""A directory of checkpoints has one writer, is never taken over, and keeps all files that a generation needs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from tensord.interpreter.checkpoints.directory import CheckpointDirectory, Collected
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.checkpoints.repacking import LARGE_VALUE_BYTES
from tensord.interpreter.errors import FileError, MetadataError

from .histories import array, content_of, last, names_of, needed_of, same, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoints"


def generate(directory, **content):
    """A generation of new values, and the values of the last one."""
    before = directory.latest().generation
    with directory.begin() as writer:
        for name, value in content.items():
            write(writer, name, value)
        for name, record in before.records() if before else ():
            if name not in content:
                writer.keep(name, record)
    return last(directory)


def test_a_directory_is_made_and_opened_again(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        assert directory.latest() == (None, {})
        assert directory.generations() == []
        generate(directory, a=array(3))
    assert path.stat().st_mode & 0o777 == 0o700
    for create in (False, True):
        with CheckpointDirectory.open(str(path), create=create) as directory:
            assert same(content_of(directory, last(directory)), {"a": array(3)})


def test_without_being_asked_to_none_is_made(path):
    with pytest.raises(FileError, match="checkpoints: cannot be opened: No such file or directory; check the path"):
        CheckpointDirectory.open(path)
    path.mkdir()
    for open_ in (CheckpointDirectory.open, CheckpointReader.open):
        with pytest.raises(MetadataError, match="checkpoints: holds no checkpoints; name a directory that does"):
            open_(path)
    assert names_of(path) == set()
    with pytest.raises(FileError, match=r"a/b: cannot be made: No such file or directory; check the path"):
        CheckpointDirectory.open(path / "a" / "b", create=True)


def test_a_directory_with_other_things_is_not_taken_over(path):
    path.mkdir()
    (path / "thesis.tex").touch()
    with pytest.raises(MetadataError, match=r"holds files that are not checkpoints \(thesis.tex\); name an empty"):
        CheckpointDirectory.open(path, create=True)
    assert names_of(path) == {"thesis.tex"}


@pytest.mark.parametrize(
    ("code", "told"), [(errno.EACCES, "let the user of this process"), (errno.EMFILE, "close files"), (errno.EIO, None)]
)
def test_an_error_of_a_path_says_what_to_do(path, monkeypatch, code, told):
    why = f": {os.strerror(code)}{f'; {told}' if told else ' *$'}"

    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    CheckpointDirectory.open(path, create=True).close()
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(FileError, match=f"cannot be opened{why}"):
        CheckpointReader.open(path)


def test_what_is_no_directory_is_refused(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(FileError, match="x: cannot be opened: Not a directory; check the path"):
        CheckpointDirectory.open(tmp_path / "x", create=True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"tensord checkpoints 2 little\n", "has format 2, but this tensord reads only format 1; use another tensord"),
        (b"tensord checkpoints 999999999 big\n", "has format 999999999, but this tensord reads only format 1"),
        (b"tensord checkpoints 1 big\n", "was written on a machine with the other byte order"),
        (b"tensord checkpoints 1 little", "its file tensord-checkpoints is not a tensord format file"),
        (b"tensord checkpoints 01 little\n", "is not a tensord format file"),
        (b"", "is not a tensord format file"),
        (bytes(1000), "is not a tensord format file"),
    ],
)
def test_other_formats_are_refused(path, content, why, monkeypatch):
    monkeypatch.setattr(sys, "byteorder", "little")
    CheckpointDirectory.open(path, create=True).close()
    (path / "tensord-checkpoints").write_bytes(content)
    for open_ in (CheckpointDirectory.open, CheckpointReader.open):
        with pytest.raises(MetadataError, match=why):
            open_(path)
    with pytest.raises(MetadataError, match=why):
        CheckpointDirectory.open(path, create=True)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("lock")])
def test_the_format_file_is_a_file(path, make):
    CheckpointDirectory.open(path, create=True).close()
    (path / "tensord-checkpoints").unlink()
    make(path / "tensord-checkpoints")
    for open_ in (CheckpointDirectory.open, CheckpointReader.open):
        with pytest.raises(MetadataError, match="is not a regular file"):
            open_(path)


# -- one writer --------------------------------------------------------------------------------------------------------


def test_another_writer_is_named_and_readers_may_read(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        generate(directory, a=array(3))
        told = f"is in use by process {os.getpid()}; stop it, close its machine, or name another directory"
        with pytest.raises(FileError, match=told):
            CheckpointDirectory.open(path)
        (path / "lock").write_text("'; rm -rf /\n")
        with pytest.raises(FileError, match="is in use by another process; stop it"):
            CheckpointDirectory.open(path, create=True)
        with CheckpointReader.open(path) as reader:
            assert same(content_of(reader, last(reader)), {"a": array(3)})
    CheckpointDirectory.open(path).close()


def test_a_writer_in_another_process_is_named(path):
    code = f"""
import sys
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
directory = CheckpointDirectory.open({str(path)!r}, create=True)
print("open", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(FileError, match=f"is in use by process {process.pid};"):
            CheckpointDirectory.open(path)
        process.kill()
    CheckpointDirectory.open(path).close()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_a_lock_that_is_no_file_is_not_followed(path, make):
    CheckpointDirectory.open(path, create=True).close()
    (path / "lock").unlink()
    make(path / "lock")
    try:
        CheckpointDirectory.open(path).close()
    except FileError as error:
        assert "cannot be locked" in error.message  # noqa: PT017 - a pipe can be locked


def test_one_generation_is_written_at_a_time_and_closing_abandons_it(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        writer = directory.begin()
        write(writer, "a", array(3))
        with pytest.raises(MetadataError, match="generation 1 is being written; end it first"):
            directory.begin()
    with pytest.raises(FileError, match="begin another one"):
        write(writer, "b", array(3))
    assert names_of(path) == {"lock", "tensord-checkpoints"}
    directory.close()


def test_numbers_go_up_and_end(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        directory.begin().abandon()
        assert generate(directory).number == 2
        (path / f"generation-{'9' * 18}").touch()
        with pytest.raises(FileError, match=r"there is no number after 9{18}; write to another directory"):
            directory.begin()


# -- removal -----------------------------------------------------------------------------------------------------------


def test_opening_removes_what_was_not_finished_and_nothing_else(path):
    CheckpointDirectory.open(path, create=True).close()
    theirs = {".tensord-0123456789abcdef", "model.safetensors", "values-1", "generation-1", "values-" + "0" * 16}
    for name in (*theirs, ".tensord-checkpoint-0123456789abcdef"):
        (path / name).touch()
    with CheckpointReader.open(path) as reader:
        assert [orphan.name for orphan in reader.orphans()] == [
            ".tensord-checkpoint-0123456789abcdef",
            "values-" + "0" * 16,
        ]
    CheckpointDirectory.open(path).close()
    assert names_of(path) == theirs | {"lock", "tensord-checkpoints"}


def test_collecting_keeps_the_last_generations_and_what_they_need(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        for seed in range(4):
            generate(
                directory,
                a=array(LARGE_VALUE_BYTES // 4, seed),
                b=array(2, seed),
                **({"c": array(1)} if not seed else {}),
            )
        assert directory.collect(9) == ([], 0, 0)
        assert directory.collect(4) == ([], 0, 0)
        assert directory.collect(3).generations == [1]
        collected = directory.collect(1)
        assert collected == Collected([2, 3], 4, 2 * (LARGE_VALUE_BYTES + 8 + 4))  # each has moved c
        assert directory.generations() == [4]
        assert names_of(path) == needed_of(directory)
        assert directory.collect(1) == ([], 0, 0)
        content = {"a": array(LARGE_VALUE_BYTES // 4, 3), "b": array(2, 3), "c": array(1)}
        assert same(content_of(directory, last(directory)), content)
        with pytest.raises(MetadataError, match="at least one generation is kept, not 0"):
            directory.collect(0)


def test_collecting_spares_what_a_generation_keeps_or_writes_meanwhile(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        first = generate(directory, a=array(3), b=array(5))
        generate(directory, a=array(4), b=array(6))
        writer = directory.begin()
        writer.keep("a", first.tensors["a"])
        write(writer, "c", array(2))
        assert directory.orphans() == []
        assert directory.collect(1) == ([1], 0, 0)
        assert directory.sweep() == []
        writer.commit()
        assert same(content_of(directory, last(directory)), {"a": array(3), "c": array(2)})
        with pytest.raises(FileError, match="cannot be opened: No such file or directory; write the value anew"):
            directory.collect(1), directory.begin().keep("b", first.tensors["b"]._replace(file=5))


def test_collecting_removes_all_that_it_can(path, monkeypatch):
    with CheckpointDirectory.open(path, create=True) as directory:
        for seed in range(4):
            generate(directory, a=array(LARGE_VALUE_BYTES // 4, seed))
        unlink, stuck = os.unlink, {"generation-00000002", min(path.glob("values-*")).name}

        def refuse(name: str, **options: int) -> None:
            if name in stuck:
                raise PermissionError(1, "Operation not permitted")
            unlink(name, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            for _ in range(2):
                with pytest.raises(FileError, match=r"cannot be removed: Operation not permitted; remove it by hand"):
                    directory.collect(1)
                assert directory.generations() == [2, 4]
        directory.collect(1)
        assert names_of(path) == needed_of(directory)


def test_the_last_generation_that_has_names_stays(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        generate(directory, a=array(3))
        generate(directory, a=array(3, 1))
        for number in range(3, 6):
            directory.begin().commit()
            directory.collect(1)
            assert directory.generations() == [2, number]
        assert same(content_of(directory, directory.generation(2)), {"a": array(3, 1)})
        assert directory.collect(2) == ([], 0, 0)
        with directory.begin() as writer:
            write(writer, "b", array(0))
        assert directory.collect(1).generations == [2, 5]
        directory.begin().commit()
        assert directory.collect(2).generations == []
        assert directory.generations() == [6, 7]


def test_who_has_values_open_keeps_them(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        first = generate(directory, a=array(3))
        with CheckpointReader.open(path) as reader, reader.values(first.tensors["a"].file) as file:
            generate(directory, a=array(4))
            assert directory.collect(1).files == 1
            assert file.read(0, 12) == array(3).tobytes()
            with pytest.raises(FileError, match=r"values-.*: cannot be opened: No such file"):
                reader.read("a", first.tensors["a"])


def test_files_that_will_be_opened_are_spared(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        first = generate(directory, a=array(3), b=array(3, 1))
        generate(directory, a=array(4), b=array(4, 1))
        assert directory.collect(1, spared=first.files) == ([1], 0, 0)
        assert directory.sweep(first.files) == []
        assert same({"a": directory.read("a", first.tensors["a"])}, {"a": array(3)})
        assert len(directory.orphans()) == 1
        assert directory.collect(1) == ([], 1, 24)


def test_orphans_are_told_with_size_and_age_and_swept(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        generate(directory, a=array(3))
        (path / "values-00000000000000aa").write_bytes(bytes(100))
        os.utime(path / "values-00000000000000aa", (0, 0))
        (orphan,) = directory.orphans()
        assert orphan[:2] == ("values-00000000000000aa", 100)
        assert orphan.age > 1e9
        assert [swept.name for swept in directory.sweep()] == [orphan.name]
        assert directory.orphans() == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("lock")])
def test_what_is_no_file_is_no_orphan_and_stays(path, make):
    with CheckpointDirectory.open(path, create=True) as directory:
        generate(directory, a=array(3))
        for name in ("values-00000000000000aa", ".tensord-checkpoint-00000000000000aa"):
            make(path / name)
        before = names_of(path)
        assert directory.orphans() == []
        assert directory.collect(1) == ([], 0, 0)
        assert names_of(path) == before


def test_values_stay_while_a_manifest_cannot_be_read_until_it_is_old(path):
    with CheckpointDirectory.open(path, create=True) as directory:
        generate(directory, a=array(3))
        generate(directory, a=array(4))
        (path / "generation-00000002").write_bytes(b"rotten")
        (path / "generation-00000003").mkdir()
    with CheckpointDirectory.open(path) as directory:
        assert last(directory).number == 1
        assert directory.latest().damaged.keys() == {2, 3}
        assert len(directory.orphans()) == 1
        assert directory.sweep() == []
        assert directory.collect(1) == ([], 0, 0)
        (path / "generation-00000003").rmdir()
        assert generate(directory, b=array(1)).number == 3
        collected = directory.collect(2)
        assert collected == ([], 0, 0)
        assert directory.collect(1) == ([1, 2], 1, 16)
        assert names_of(path) == needed_of(directory)
        assert same(content_of(directory, last(directory)), {"a": array(3), "b": array(1)})
