"""Directories of checkpoints with one or two errors, and checks of how they are read."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgpack

from tensord.interpreter.checkpoints import layout
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.manifest import FRAME_LENGTH, HEADER, MAGIC, read_manifest
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.checkpoints.record import CheckpointLimits, Generation
from tensord.interpreter.errors import FileError, MetadataError, TensordError

from ..files.mangling import NUMBERS, STRANGE, replace, with_wrong_bytes
from ..files.sound_files import opened
from .histories import Generate, Play, array, same, small_files

LIMITS: Final = CheckpointLimits(manifest=1 << 16, names=64, name=64, fields=256, text=1 << 10)
MEMORY: Final = 1 << 22  # bytes that reading a manifest may take at a time
LONGEST: Final = 1000  # characters of an error
LARGEST: Final = 1 << 20  # bytes of a value that is read
NAMES: Final = ("a", "b", "weight", "layers.0.bias", "é")


def manifest_of(frames: Iterable[Any]) -> bytes:
    """A manifest of any frames, with the right checksum."""
    packed = [one if isinstance(one, bytes) else pack(one) for one in frames]
    return manifest_around(b"".join(FRAME_LENGTH.pack(len(one)) + one for one in packed))


def pack(value: Any) -> bytes:
    """A value in msgpack, with objects that it cannot encode as texts."""
    packed: bytes = msgpack.packb(value, default=str, unicode_errors="surrogatepass")
    return packed


def manifest_around(payload: bytes) -> bytes:
    """A manifest of any bytes after a matching header."""
    return HEADER.pack(MAGIC, zlib.crc32(payload), len(payload)) + payload


def frames_of(content: bytes) -> list[Any]:
    """The frames of a valid manifest, as lists."""
    frames, at = [], HEADER.size
    while at < len(content):
        (length,) = FRAME_LENGTH.unpack_from(content, at)
        at += FRAME_LENGTH.size
        frames.append(msgpack.unpackb(content[at : at + length]))
        at += length
    return frames


def random_play(path: Path, rnd: random.Random) -> Play:
    """A valid directory of one or two generations."""
    play = Play(path)
    for _ in range(rnd.choice((1, 2))):
        written: dict[str, Any] = {
            name: array(rnd.choice((0, 1, 3, 40)), rnd.randrange(9), rnd.choice(("int8", "float32", "complex128")))
            for name in rnd.sample(NAMES, rnd.randrange(4))
        }
        written.update((name, "def f\n" * rnd.randrange(9)) for name in rnd.sample(("r", "s"), rnd.randrange(3)))
        play.take(Generate(written, set(rnd.sample(NAMES, rnd.randrange(4))), {"x": rnd.choice(NAMES)}))
    play.close()
    return play


# -- wrong directories -------------------------------------------------------------------------------------------------


def mangle(path: Path, rnd: random.Random) -> None:
    """Corrupt a directory: the contents of a manifest, the bytes of a file, or a whole file."""
    manifests = sorted(path.glob("generation-*"))
    if rnd.random() < 0.6:
        manifest = rnd.choice(manifests)
        frames = frames_of(manifest.read_bytes())
        for _ in range(rnd.choice((1, 1, 2))):
            mangle_frames(frames, rnd)
        content = manifest_of(frames)
        if rnd.random() < 0.2:
            content = manifest_around(with_wrong_bytes(content[HEADER.size :], rnd))
        manifest.write_bytes(content)
    while rnd.random() < 0.5:
        mangle_file(rnd.choice(sorted(path.iterdir())), rnd)


def mangle_frames(frames: list[Any], rnd: random.Random) -> None:
    """Remove, repeat or move frames, or give them strange values."""
    way, at = rnd.random(), rnd.randrange(len(frames) + 1)
    if way < 0.1 and frames:
        del frames[at % len(frames)]
    elif way < 0.2 and frames:
        frames.insert(at, rnd.choice(frames))
    elif way < 0.3:
        frames.insert(at, rnd.choice((*STRANGE, [], [0], [1], [2], [3], [2, []], [[0]], b"", b"\xc1")))
    elif way < 0.4:
        row = ["new", rnd.choice(("int8", "float64", None, "x")), rnd.choice(([3], 3, [2**62, 4], [])), 0]
        frames.append([2, [*row, rnd.choice(NUMBERS), rnd.choice(NUMBERS), rnd.choice((b"", b"\x80", ""))]])
    elif way < 0.5 and frames and isinstance(frames[0], list) and len(frames[0]) == 5:
        frames[0][rnd.randrange(5)] = rnd.choice(NUMBERS)
    else:
        replace(frames, rnd)


def mangle_file(file: Path, rnd: random.Random) -> None:
    """Damage a file, remove it, rename it, or replace it by another kind of file."""
    way = rnd.randrange(8)
    if not file.is_file() or file.is_symlink() or file.stat().st_size > LARGEST:
        return
    if way < 3:
        file.write_bytes(with_wrong_bytes(file.read_bytes(), rnd))
    elif way == 3:
        os.truncate(file, rnd.choice((0, 1, 1 << 20, 1 << 40)))
    elif way == 4:
        name = rnd.choice(("generation-00000009", "values-00000000000000ff", "thesis.tex", "generation-9", "lock"))
        if not (file.parent / name).is_dir():
            file.rename(file.parent / name)
    else:
        file.unlink()
        if way == 5:
            file.symlink_to(rnd.choice(("lock", "/etc/passwd", "../outside", file.name, ".")))
        elif way == 6:
            file.mkdir()
        elif rnd.random() < 0.5:
            os.mkfifo(file)


# -- checks ------------------------------------------------------------------------------------------------------------


def check_directory(path: Path) -> None:
    """Check that readers and writers get valid generations or tensord's own errors, and do not touch other files."""
    outside = path.with_name("outside")
    outside.write_text("mine")
    theirs = [entry for entry in path.iterdir() if not is_ours(entry.name)]
    try:
        with CheckpointReader.open(path, limits=LIMITS) as reader:
            check_reader(reader)
        with small_files(), CheckpointDirectory.open(path, limits=LIMITS) as directory:
            check_writer(directory)
    except TensordError as error:
        check_error(error, path)
    assert outside.read_text() == "mine"
    assert all(os.path.lexists(entry) for entry in theirs)


def is_ours(name: str) -> bool:
    """Whether a file of that name may be removed."""
    return bool(layout.generation_of(name) or layout.values_of(name) is not None or layout.is_unfinished(name))


def check_reader(reader: CheckpointReader) -> None:
    """Read the whole directory."""
    found = reader.latest()
    for why in found.damaged.values():
        check_error(MetadataError(why), reader.path)
    reader.orphans()
    for number in reader.generations():
        try:
            generation = reader.generation(number)
        except TensordError as error:
            check_error(error, reader.path)
        else:
            check_generation(reader, generation)


def check_generation(reader: CheckpointReader, generation: Generation) -> None:
    """Check that each value is as its manifest says, or is reported as damaged."""
    check_sound(generation)
    small = all(size <= LARGEST for size in generation.files.values())
    damaged = reader.verify(generation, deep=small)
    assert damaged.keys() <= {name for name, _ in generation.records()}
    for why in damaged.values():
        check_error(MetadataError(why), reader.path)
    for name, record in generation.records():
        try:
            _ = record.fields
        except MetadataError as error:
            check_error(error, None)
        if record.nbytes > LARGEST:
            continue
        try:
            value = reader.read_text(record) if record.meta is None else reader.read(name, record)
        except (FileError, MetadataError) as error:
            check_error(error, reader.path)
            refused = name in damaged or not small or "not UTF-8" in error.message
            assert refused
        else:
            assert name not in damaged
            assert isinstance(value, str) or value.nbytes == record.nbytes


def check_sound(generation: Generation) -> None:
    """Check that the contents of a manifest are valid."""
    for name, record in generation.records():
        assert name.isprintable()
        assert len(name) <= LIMITS.name
        assert record.meta is None or record.meta.nbytes == record.nbytes
        assert 0 <= record.offset <= record.offset + record.nbytes <= generation.files[record.file]
        assert 0 <= record.crc < 2**32
    ranges = sorted({record.byte_range for _, record in generation.records()})
    for (file, offset, nbytes), (next_file, next_offset, _) in itertools.pairwise(ranges):
        assert file != next_file or offset + nbytes <= next_offset
    assert {record.file for _, record in generation.records()} == generation.files.keys()


def check_writer(directory: CheckpointDirectory) -> None:
    """Write a new generation with the values that can be kept, and collect the others."""
    before = directory.latest().generation
    kept = {}
    with directory.begin() as writer:
        for name, record in before.records() if before else ():
            try:
                kept[name] = writer.keep(name, record)
            except FileError as error:
                check_error(error, directory.path)
    generation = directory.latest().generation
    assert generation is not None
    assert dict(generation.records()).keys() == kept.keys()
    directory.collect(1)
    again = directory.latest().generation
    assert again == generation
    assert same(dict.fromkeys(kept, ""), {name: "" for name, _ in again.records()})


def check_manifest(content: bytes) -> None:
    """Check that any bytes are a generation or one of tensord's own errors, and that reading them takes little
    memory."""
    with opened(content) as file:
        tracemalloc.start()
        try:
            check_sound(read_manifest(file, 1, LIMITS))
        except TensordError as error:
            check_error(error, Path("x.bin"))
        finally:
            memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert memory < MEMORY, f"reading {len(content)} bytes took {memory}"


def check_error(error: TensordError, path: Path | None) -> None:
    """Check that the error is tensord's own, names the directory, and is short."""
    assert path is None or str(path) in error.message, error.message
    assert len(error.message) < LONGEST, "the message repeats what was in the file"
    assert error.message.isprintable(), error.message


def try_mangled(folder: Path, rnd: random.Random) -> None:
    """Try a valid directory, then the same with errors."""
    with patch.object(os, "fsync"):  # these need not be durable
        try_directory(folder / "checkpoints", rnd)


def try_directory(path: Path, rnd: random.Random) -> None:
    """Like `try_mangled`, at a path that does not exist yet."""
    try:
        with small_files():
            play = random_play(path, rnd)
        with CheckpointReader.open(path, limits=LIMITS) as reader:
            check_reader(reader)
            assert not reader.latest().damaged
            assert len(reader.generations()) == len(play.expected)
        mangle(path, rnd)
        check_directory(path)
    finally:
        shutil.rmtree(path)
