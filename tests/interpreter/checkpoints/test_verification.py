"""Damaged values are named with the reason, by sizes alone or by every byte, and the rest is sound."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tensord.interpreter.checkpoints import layout, verification
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.repacking import LARGE_VALUE_BYTES
from tensord.interpreter.types.meta import Meta

from .histories import array, content_of, last, write

CONTENT = {"large": array(LARGE_VALUE_BYTES // 4 + 5), "a": array(3), "b": array(3, 1), "e": array(0), "r": "text"}


@pytest.fixture
def directory(tmp_path):
    with CheckpointDirectory.open(tmp_path / "c", create=True) as opened:
        with opened.begin() as writer:
            for name, value in CONTENT.items():
                write(writer, name, value)
            writer.keep("alias", writer.records["a"], {})
        yield opened


def path_of(directory, name):
    record = dict(last(directory).records())[name]
    return directory.path / layout.values_file(record.file), record


def flip(path, offset):
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 16]))


def test_sound_generations_have_nothing_wrong(directory):
    generation = last(directory)
    assert directory.verify(generation) == directory.verify(generation, deep=True) == {}


def test_a_missing_file_damages_what_lies_in_it(directory):
    path, _ = path_of(directory, "large")
    path.unlink()
    for deep in (False, True):
        damaged = directory.verify(last(directory), deep=deep)
        assert damaged == {"large": f"{path}: cannot be opened: No such file or directory"}


def test_a_short_file_damages_what_lies_behind_its_end(directory):
    path, record = path_of(directory, "b")
    os.truncate(path, record.offset + 1)
    for deep in (False, True):
        damaged = directory.verify(last(directory), deep=deep)
        assert damaged.keys() == {"b", "e", "r"}
        assert damaged["b"] == f"{path}: has 13 bytes and should have 24 at least; was it cut short?"


@pytest.mark.parametrize(("name", "damaged"), [("large", {"large"}), ("a", {"a", "alias"}), ("r", {"r"})])
def test_a_wrong_byte_is_found_by_reading_all_and_damages_its_value_alone(directory, name, damaged):
    path, record = path_of(directory, name)
    flip(path, record.offset + record.nbytes - 1)
    generation = last(directory)
    assert directory.verify(generation) == {}
    found = directory.verify(generation, deep=True)
    assert found.keys() == damaged
    assert all(f"{path}: is damaged: the piece at byte {record.offset} has checksum" in why for why in found.values())
    for other in CONTENT.keys() - damaged - {"r"}:
        assert directory.read(other, generation.tensors[other]).tobytes() == CONTENT[other].tobytes()


def test_a_bool_that_is_none_is_damage(directory):
    with directory.begin() as writer:
        writer.write("bool", Meta.of((2,), "bool"), b"\1\2")
    damaged = directory.verify(last(directory), deep=True)
    assert "bools that are neither 0 nor 1" in damaged["bool"]


def test_what_is_no_file_is_damage(directory):
    path, _ = path_of(directory, "large")
    for make in (os.mkdir, os.mkfifo, lambda path: path.symlink_to("lock")):
        path.rename(path.with_name("moved"))
        make(path)
        (why,) = directory.verify(last(directory)).values()
        assert "is not a regular file" in why
        path.rmdir() if path.is_dir() else path.unlink()
        path.with_name("moved").rename(path)
    assert directory.verify(last(directory)) == {}


def test_progress_is_told_up_to_the_end(directory, monkeypatch):
    monkeypatch.setattr(verification, "CHUNK_BYTES", 1000)
    generation = last(directory)
    told: list[tuple[int, int]] = []
    directory.verify(generation, deep=True, progress=lambda *done: told.append(done))
    assert told[-1] == (generation.nbytes, generation.nbytes)
    assert told == sorted(told)
    assert max(np.diff([0, *(done for done, _ in told)])) <= 1000
    path_of(directory, "large")[0].unlink()
    path, record = path_of(directory, "a")
    flip(path, record.offset)
    told.clear()
    directory.verify(generation, deep=True, progress=lambda *done: told.append(done))
    assert told[-1] == (generation.nbytes, generation.nbytes)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        directory.verify(generation, deep=True, progress=stop)


def test_the_rest_of_a_damaged_generation_can_be_kept(directory):
    path_of(directory, "large")[0].unlink()
    generation = last(directory)
    damaged = directory.verify(generation, deep=True)
    with directory.begin() as writer:
        for name, record in generation.records():
            if name not in damaged:
                writer.keep(name, record)
    found = last(directory)
    assert content_of(directory, found).keys() == {*CONTENT, "alias"} - {"large"}
    assert directory.verify(found, deep=True) == {}
