"""Manifests come back as they were, and hostile ones are refused by name, without much memory or time."""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest

from tensord.interpreter.checkpoints.manifest import FRAME_BYTES, HEADER, MAGIC, encode_manifest, read_manifest
from tensord.interpreter.checkpoints.record import CheckpointLimits, Generation, ValueRecord
from tensord.interpreter.errors import FileError, MetadataError, QuotaError
from tensord.interpreter.files.tensor_file import TensorFile
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from ..files.sound_files import opened
from .mangling import LIMITS, frames_of, manifest_around, manifest_of


def read(content, limits=LIMITS, number=1):
    with opened(content) as file:
        return read_manifest(file, number, limits)


def random_generation(rnd, names):
    """Values of any kind that lie in files one behind the other, some under two names."""
    tensors: dict[str, ValueRecord] = {}
    routines: dict[str, ValueRecord] = {}
    files: dict[int, int] = {}
    id_, at = -1, 0
    last = None
    for number in range(names):
        if id_ < 0 or rnd.random() < 0.1:
            id_, at = rnd.getrandbits(64), 0
        fields = rnd.randbytes(rnd.choice((0, 0, 5, 200)))
        if last is not None and rnd.random() < 0.2:
            record = last._replace(packed=fields)
        elif rnd.random() < 0.2:
            record = ValueRecord(None, id_, at, rnd.randrange(999), rnd.getrandbits(32), fields)
        else:
            shape = tuple(rnd.choice((0, 1, 2, 3)) for _ in range(rnd.randrange(5)))
            meta = Meta.of(shape, rnd.choice(list(DTYPES.values())))
            record = ValueRecord(meta, id_, at, meta.nbytes, rnd.getrandbits(32), fields)
        last = record
        at = record.offset + record.nbytes + rnd.choice((0, 0, 3))
        id_ = record.file
        files[id_] = max(at, files.get(id_, 0))
        (routines if record.meta is None else tensors)[f"name {number} é"] = record
    return Generation(1, rnd.getrandbits(62), tensors, routines, files)


@each_case("names", [0, 1, 2, 20, 3000])
def test_a_generation_comes_back(names):
    limits = CheckpointLimits()
    for seed in range(10 if names < 1000 else 2):
        generation = random_generation(random.Random(seed), names)
        assert read(encode_manifest(generation, limits), limits) == generation


def test_values_that_overlap_are_not_written():
    """Records of several generations may overlap, if one of the generations was not ours."""
    meta = Meta.of((4,), "int8")
    for records in ({"a": (0, 4), "b": (3, 4)}, {"a": (0, 4), "b": (0, 2)}, {"a": (0, 4), "b": (2, 0)}):
        tensors = {name: ValueRecord(meta, 7, offset, nbytes, 0) for name, (offset, nbytes) in records.items()}
        with pytest.raises(MetadataError, match=r"'.': its bytes are in part those of another value"):
            encode_manifest(Generation(1, 0, tensors, {}, {7: 10}), LIMITS)


def test_frames_are_short():
    content = encode_manifest(random_generation(random.Random(1), 3000), CheckpointLimits())
    assert len(frames_of(content)) > 3
    assert len(content) > 4 * FRAME_BYTES


def row(name="a", dtype="int8", shape=(4,), index=0, offset=0, crc=0, packed=b""):
    return [name, dtype, shape, index, offset, crc, packed]


def head(number=1, written=0, files=1, names=1):
    return [0, number, written, files, names]


SOUND = ([0, 1, 0, 1, 1], [1, 7, 10], [2, row()])


def test_the_sound_one_is_sound():
    generation = read(manifest_of(SOUND))
    assert generation == Generation(1, 0, {"a": ValueRecord(Meta.of((4,), "int8"), 7, 0, 4, 0)}, {}, {7: 10})


@each_case(
    ("frames", "why"),
    [
        ([], "it does not begin with its head"),
        ([[1, 7, 10]], "it does not begin with its head"),
        ([[0, 1, 0, 1]], "it does not begin with its head"),
        ([[0, 1, 0, True, 1]], "it does not begin with its head"),
        ([[0, 1, 0, 2**63, 1]], "it does not begin with its head"),
        ([head(number=2)], "it is of generation 2, under another name"),
        ([head(), head()], "a frame of kind 0 is not expected here"),
        ([head(), [3]], "a frame of kind 3 is not expected here"),
        ([head(), {}], "a header is an array that starts with its kind"),
        ([head(), b"\xc1"], "msgpack cannot decode"),
        ([head(), b""], "msgpack cannot decode"),
        ([head(), b"\x91" * 2000], "msgpack cannot decode"),
        ([head(), b"\x92\x02\xc7\x01\x05x"], "ext type 5"),
        ([head(), [1, 7]], "there are more files than it says"),
        ([head(), [1, 7, 10, 8, 10]], "there are more files than it says"),
        ([head(files=2), [1, 7, 10, 7, 10]], "its files are not in their order"),
        ([head(files=2), [1, 7, 10], [1, 6, 10]], "its files are not in their order"),
        ([head(), [1, -1, 10]], "its files are not in their order"),
        ([head(), [1, "../x", 10]], "its files are not in their order"),
        ([head(), [1, 7.0, 10]], "its files are not in their order"),
        ([head(), [1, 7, -1]], "a file's size is not a whole number"),
        ([head(), [1, 7, 2**63]], "a file's size is not a whole number"),
        ([head(), [1, 7, True]], "a file's size is not a whole number"),
        ([head(), [1, 7, 10]], "files or names are missing"),
        ([head(names=2), [1, 7, 10], [2, row()]], "files or names are missing"),
        ([head(files=2), [1, 7, 10, 8, 10], [2, row()]], "files or names are missing"),
        ([head(), [1, 7, 10], [2, row(), row("b")]], "there are more names than it says"),
        ([head(files=2), [1, 7, 10], [2, row()], [1, 8, 10]], "a frame of kind 1 is not expected here"),
        ([head(names=2), [1, 7, 10], [2, row(), row(offset=4)]], "'a' occurs twice"),
        ([head(names=2), [1, 7, 10], [2, row(), row(dtype=None, shape=2, offset=4)]], "'a' occurs twice"),
        ([head(), [1, 7, 10], [2, row()[:6]]], "is not an array of seven fields"),
        ([head(), [1, 7, 10], [2, "a"]], "is not an array of seven fields"),
        ([head(), [1, 7, 10], [2, row(name="")]], "a name is printable text, and '' is not"),
        ([head(), [1, 7, 10], [2, row(name=b"a")]], "a name is printable text"),
        ([head(), [1, 7, 10], [2, row(name="a\x1b[2J")]], r"a name is printable text, and 'a\\x1b\[2J' is not"),
        ([head(), [1, 7, 10], [2, row(name="x" * 65)]], "has 65 characters; the limit is 64"),
        ([head(), [1, 7, 10], [2, row(dtype="object")]], "'a': tensord does not have its dtype"),
        ([head(), [1, 7, 10], [2, row(dtype=["int8"])]], "'a': tensord does not have its dtype"),
        ([head(), [1, 7, 10], [2, row(dtype=True)]], "'a': tensord does not have its dtype"),
        ([head(), [1, 7, 10], [2, row(shape=4)]], "'a': its shape is not a list of at most 64 numbers"),
        ([head(), [1, 7, 10], [2, row(shape=[1] * 65)]], "'a': its shape is not a list of at most 64 numbers"),
        ([head(), [1, 7, 10], [2, row(shape=[-1])]], "'a': its shape holds something else than whole numbers"),
        ([head(), [1, 7, 10], [2, row(shape=[4.0])]], "'a': its shape holds something else than whole numbers"),
        ([head(), [1, 7, 10], [2, row(shape=[True])]], "'a': its shape holds something else than whole numbers"),
        ([head(), [1, 7, 10], [2, row(shape=[2**62, 2**62])]], "'a': shape .* is too large for any memory"),
        ([head(), [1, 7, 10], [2, row(index=1)]], "'a': its file is not the one before, or the next"),
        ([head(), [1, 7, 10], [2, row(index=-1)]], "'a': its file is not the one before, or the next"),
        ([head(), [1, 7, 10], [2, row(index=False)]], "'a': its file is not the one before, or the next"),
        ([head(files=0), [2, row()]], "'a': its file is not the one before, or the next"),
        (
            [head(files=2, names=3), [1, 7, 10, 8, 10], [2, row(), row("b", index=1), row("c", offset=5)]],
            "'c': its file is not the one before, or the next",
        ),
        ([head(), [1, 7, 10], [2, row(offset=7)]], "'a': takes 4 bytes from 7 on, and does not lie in its file of 10"),
        ([head(), [1, 7, 10], [2, row(offset=-1)]], "'a': takes 4 bytes from -1 on"),
        ([head(), [1, 7, 10], [2, row(offset=2**64 - 1)]], "does not lie in its file of 10"),
        ([head(), [1, 7, 10], [2, row(offset=1.0)]], "its offset, checksum or fields are of another type"),
        ([head(), [1, 7, 10], [2, row(crc=2**32)]], "its offset, checksum or fields are of another type"),
        ([head(), [1, 7, 10], [2, row(crc=None)]], "its offset, checksum or fields are of another type"),
        ([head(), [1, 7, 10], [2, row(packed="x")]], "its offset, checksum or fields are of another type"),
        ([head(), [1, 7, 10], [2, row(packed=b"x" * 257)]], "its fields take 257 bytes; the limit is 256"),
        ([head(names=2), [1, 7, 10], [2, row(), row("b", offset=3)]], "'b': takes 4 bytes from 3 on, and overlaps"),
        ([head(names=2), [1, 7, 10], [2, row(), row("b", shape=(2,))]], "'b': takes 2 bytes from 0 on, and overlaps"),
        ([head(names=2), [1, 7, 10], [2, row(offset=4), row("b")]], "'b': takes 4 bytes from 0 on"),
        ([head(), [1, 7, 10], [2, row(dtype=None, shape=1025)]], "its text does not have 0 to 1024 bytes"),
        ([head(), [1, 7, 10], [2, row(dtype=None, shape=[4])]], "its text does not have 0 to 1024 bytes"),
        ([head(), [1, 7, 10], [2, row(dtype=None, shape=-1)]], "its text does not have 0 to 1024 bytes"),
    ],
)
def test_malformed_manifests_are_refused(frames, why):
    with pytest.raises(MetadataError, match=r"^x.bin: is malformed: ") as caught:
        read(manifest_of(frames))
    assert caught.match(why)


def test_frames_beyond_the_end_or_too_long_are_refused():
    for payload, why in (
        (b"\x01", "its last frame ends before it begins"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\x05\0\0\0\x90", "a frame of 5 bytes"),
        ((40_000).to_bytes(4, "little") + bytes(40_000), "a frame of 40000 bytes"),
    ):
        with pytest.raises(MetadataError, match=why):
            read(manifest_around(payload))


def test_what_is_no_manifest_is_damaged():
    sound = manifest_of(SOUND)
    for content, why in (
        (b"", "it has 0 bytes; was it cut short?"),
        (sound[:19], "it has 19 bytes; was it cut short?"),
        (b"x" + sound[1:], "it does not begin as a manifest does"),
        (sound[:-1], r"it has \d+ bytes after its header, not"),
        (sound + b"\0", r"it has \d+ bytes after its header, not"),
        (HEADER.pack(MAGIC, 0, 2**64 - 1), "it has 0 bytes after its header, not 18446744073709551615"),
        (sound[:-1] + b"x", r"it has checksum \w{8}, not \w{8}"),
    ):
        with pytest.raises(FileError, match=rf"^x.bin: is damaged: {why}"):
            read(content)


def test_limits_are_checked_before_memory_is_spent():
    with pytest.raises(QuotaError, match=r"^x.bin: has 65 names; the limit is 64"):
        read(manifest_of([head(names=65)]))
    with opened(b"") as file:
        os.truncate(file.fd, 1 << 40)
        large = TensorFile(file.fd, "x.bin")
        with pytest.raises(QuotaError, match=r"^x.bin: has 1 TiB .*; the limit is 64 KiB"):
            read_manifest(large, 1, LIMITS)


@each_case("unit", [b"\x91\x00", b"\x90", b"\xc0", b"\x81\xa1a\x90", b"\x92\xa0\x90"])
def test_objects_take_little_memory_however_many_there_are(unit):
    """Each frame is short, and is refused before the next one is decoded."""
    frame = b"\xdc" + (15_000).to_bytes(2, "big") + b"\x02" + unit * 14_999
    frame = frame[:30_000]
    limits = CheckpointLimits()
    content = manifest_of([head(names=50_000, files=0), *[frame] * 500])
    assert len(content) > 7_000_000
    with opened(content) as file:
        tracemalloc.start()
        try:
            with pytest.raises(MetadataError):
                read_manifest(file, 1, limits)
            assert tracemalloc.get_traced_memory()[1] < 2 * len(content) + (1 << 22)
        finally:
            tracemalloc.stop()
