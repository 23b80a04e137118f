"""Histories of a directory of checkpoints, step by step, with a model of it: the content by number of generation."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from tensord.interpreter.checkpoints import layout, repacking, values_writer
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.checkpoints.record import Generation, ValueRecord
from tensord.interpreter.checkpoints.writer import GenerationWriter
from tensord.interpreter.errors import FileError
from tensord.interpreter.types.meta import Meta

Content = dict[str, Any]  # an array, or the text of a routine, by name
PIECE: Final = 48  # bytes of an array that are written at a time; of a large array, an eighth
# Limits so small that few bytes reach every branch.
SMALL: Final[dict[str, Any]] = {"LARGE_VALUE_BYTES": 64, "FULL_PACK_BYTES": 300, "FILES_PER_FLUSH": 2}


@contextmanager
def small_files() -> Iterator[None]:
    """A few bytes make a value large, and a pack full."""
    with (
        patch.multiple(values_writer, **SMALL),
        patch.multiple(repacking, LARGE_VALUE_BYTES=192, MAX_PACKS_PER_TIER=1, MAX_MOVED_BYTES=400),
    ):
        yield


# -- values ------------------------------------------------------------------------------------------------------------


def array(count: int, seed: int = 0, dtype: str = "float32") -> Any:
    """An array with any bits."""
    return np.frombuffer(np.random.default_rng(seed).bytes(count * np.dtype(dtype).itemsize), dtype)


def write(writer: GenerationWriter, name: str, value: Any) -> ValueRecord:
    """Write a value in pieces, with a field that identifies it."""
    if isinstance(value, str):
        return writer.routine(name, value, {"name": name})
    writer.start(name, Meta.of(value.shape, value.dtype), {"name": name})
    content = value.tobytes()
    step = max(PIECE, len(content) // 8)
    for begin in range(0, len(content), step):
        writer.append(content[begin : begin + step])
    return writer.records[name]


def content_of(reader: CheckpointReader, generation: Generation) -> Content:
    """All values of a generation, read completely, so that their checksums are checked."""
    content: Content = {name: reader.read_text(record) for name, record in generation.routines.items()}
    content.update((name, reader.read(name, record)) for name, record in generation.tensors.items())
    assert all(record.fields in ({"name": name}, {}) for name, record in generation.records())
    return content


def last(reader: CheckpointReader) -> Generation:
    """The last generation, which must exist."""
    found = reader.latest().generation
    assert found is not None
    return found


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both contents are equal, bit for bit."""
    return one.keys() == other.keys() and all(_plain(one[name]) == _plain(other[name]) for name in one)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else (value.shape, value.dtype.name, value.tobytes())


# -- steps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generate:
    """A new generation: values to write, names to keep, and further names for values."""

    written: Content
    kept: Iterable[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Collect:
    """Old generations are removed."""

    keep: int


class Reopen:
    """The directory is closed and opened again."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies while it writes these values; the next process finds the bytes that have reached the disk."""

    written: Content


Step = Generate | Collect | Reopen | Crash

# All that can happen to a value: large or small, kept, moved, under two names, removed; and an aborted generation.
STEPS: Final[tuple[Step, ...]] = (
    Generate({"a": array(3), "w": array(40), "r": "def r", "e": array(0)}, aliases={"w2": "w"}),
    Generate({"a": array(3, 1), "c": array(5), "d": array(5, 2)}, ("w", "r", "e")),
    Generate({"a": array(70, 2), "x": array(2), "r": "no"}, ("w",), abandoned=True),
    Reopen(),
    Generate({"w": array(30, 4), "z": array(1, 5, "complex128")}, ("a", "r", "d"), {"d2": "d"}),
    Collect(1),
    Generate({"b": array(2, 6)}, ("a", "w", "d2", "z")),
    Collect(2),
)


class Play:
    """A history: the directory, and its expected content.

    `acknowledged`: called with the number of each generation that must last. `expected`: the content of each generation
    whose commit was begun, by its number.
    """

    def __init__(self, path: Path, acknowledged: Callable[[int], None] = lambda _: None) -> None:
        self.path = path
        self.acknowledged = acknowledged
        self.expected: dict[int, Content] = {}
        self.last = 0  # the last committed generation
        self.errors: list[FileError] = []
        self.records: dict[str, ValueRecord] = {}
        self.content: Content = {}
        self.directory: CheckpointDirectory | None = None

    def play(self, steps: Iterable[Step], *, faults: bool = False) -> None:
        """Play all steps. With `faults` they may raise FileErrors, which are kept."""
        try:
            for step in itertools.chain((Reopen(),), steps):
                try:
                    self.take(step)
                except FileError as error:
                    if not faults:
                        raise
                    self.errors.append(error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the directory, if it is open."""
        if self.directory is not None:
            self.directory.close()
            self.directory = None

    def take(self, step: Step) -> None:
        """Play one step."""
        if isinstance(step, Reopen):
            self.close()
        if self.directory is None:
            self.directory = CheckpointDirectory.open(self.path, create=True)
            self.resume(self.directory)
        if isinstance(step, Collect):
            self.directory.collect(step.keep)
        elif isinstance(step, Generate):
            self.generate(self.directory, step)
        elif isinstance(step, Crash):
            self.crash(self.directory, step)

    def resume(self, directory: CheckpointDirectory) -> None:
        """Continue from the directory's content: the generation that was committed last, or one that was being
        committed."""
        found = directory.latest().generation
        number = found.number if found else 0
        assert number in self.allowed
        self.last, self.content = number, self.expected.get(number, {})
        self.records = dict(found.records()) if found else {}

    @property
    def allowed(self) -> tuple[int, ...]:
        """The generations that the last one may be."""
        return (self.last, *(number for number in self.expected if number > self.last))

    def crash(self, directory: CheckpointDirectory, step: Crash) -> None:
        """Continue with a copy of the directory that was taken in the middle of a generation."""
        writer = directory.begin()
        for name, value in step.written.items():
            write(writer, name, value)
        writer.start("half", Meta.of((100,), "float64"))
        writer.append(bytes(PIECE))
        after = self.path.with_name(f"{self.path.name}-after")
        shutil.copytree(self.path, after)
        self.close()
        self.path = after

    def generate(self, directory: CheckpointDirectory, step: Generate) -> None:
        """Write a generation. Names that do not exist cannot be kept, and are left out."""
        content = dict(step.written)
        kept = {name for name in step.kept if name in self.records and name not in content}
        writer = directory.begin()
        for name, value in content.items():
            write(writer, name, value)
        for name in sorted(kept):
            writer.keep(name, self.records[name])
            content[name] = self.content[name]
        for alias, name in step.aliases.items():
            if name in content and alias not in content:
                writer.keep(alias, writer.records[name], {})
                content[alias] = content[name]
        if step.abandoned:
            writer.abandon()
            return
        self.expected[writer.number] = content
        generation = writer.commit()
        self.last, self.content = generation.number, content
        self.records = dict(generation.records())
        self.acknowledged(generation.number)


# -- checks ------------------------------------------------------------------------------------------------------------


def check_whole(path: Path, expected: Mapping[int, Content], allowed: Iterable[int]) -> int:
    """Check that the last generation (0 if there is none) is one of `allowed`, and that each existing one is
    complete, bit for bit."""
    with CheckpointReader.open(path) as reader:
        generation, damaged = reader.latest()
        assert not damaged
        number = generation.number if generation else 0
        assert number in allowed, f"generation {number} where it has to be one of {list(allowed)}"
        for one in reader.generations():
            found = reader.generation(one)
            assert same(content_of(reader, found), expected[one])
            assert reader.verify(found, deep=True) == {}
    return number


def check_goes_on(path: Path, expected: Mapping[int, Content], number: int) -> None:
    """Check that the directory is not locked, that leftovers are removed, and that the next generation can keep all
    values."""
    with CheckpointDirectory.open(path, create=True) as directory:
        assert not any(map(layout.is_unfinished, names_of(path)))
        orphans = {orphan.name for orphan in directory.orphans()}
        assert orphans == names_of(path) - needed_of(directory)
        assert {orphan.name for orphan in directory.sweep()} == orphans
        assert names_of(path) == needed_of(directory)
        generation = directory.latest().generation
        assert (generation.number if generation else 0) == number
        with directory.begin() as writer:
            for name, record in generation.records() if generation else ():
                writer.keep(name, record)
            write(writer, "new", "text")
        check_whole(path, {**expected, writer.number: {**expected.get(number, {}), "new": "text"}}, [writer.number])


def names_of(path: Path) -> set[str]:
    """The names in a directory."""
    return {entry.name for entry in path.iterdir()}


def needed_of(reader: CheckpointReader) -> set[str]:
    """The names that a directory must have."""
    numbers = reader.generations()
    values = {id_ for number in numbers for id_ in reader.generation(number).files}
    names = {layout.FORMAT_FILE, layout.LOCK_FILE}
    return names | set(map(layout.generation_file, numbers)) | set(map(layout.values_file, values))
