"""Recordings with changed entries: a replay succeeds, or raises an error, and ends no machine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.replay.bisect import bisect
from tensord.client.replay.sides import spec_of
from tensord.interpreter.errors import ConnectionLost, TensordError
from tensord.interpreter.recordings.chunks import HEADER, head_line, pack
from tensord.interpreter.recordings.entries import decode_entry
from tensord.interpreter.recordings.reader import RecordingReader
from tensord.interpreter.wire.codec import Encoder

SEEDS = range(40)
OTHERS = (0, 1, -1, 3, 1 << 40, (1 << 63) - 1, "", "x", "sim:0", "float64", "add", None, True, 1.5, (), (1,), b"x")


@pytest.fixture(scope="module")
def entries(tmp_path_factory) -> list[Any]:
    """The entries of a recording with ops, writes in place, a routine, a loop, a group, random numbers, a shape from
    data.
    """
    path = tmp_path_factory.mktemp("recorded") / "x.rec"
    with td.connect("local", devices=["cpu:0", "sim:0"]) as session:
        x = session.asarray(np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4))
        w = session.asarray(np.ones((4, 4), np.float32), device="sim:0")
        step = session.routine(lambda a, b: session.xp.tanh(a @ b) * 0.5)
        with session.record(path):
            y = step(step(x.to_device("sim:0"), w), w)
            w += 0.25
            drawn = session.xp.nonzero(session.random.normal((3, 4)) > 0)
            looped = session.while_loop(lambda a: a.sum() < 50, lambda a: a + 1, x)
            with session.atomic():
                last = (x + 1) * 2
            for tensor in (y, drawn[0], looped, last):
                tensor.numpy()
    with RecordingReader(path) as reader:
        chunks = [chunk for chunk, _ in reader._chunks()]
    body = path.read_bytes()
    starts = [chunk.offset + HEADER for chunk in chunks]
    return [decode_entry(body[start : start + chunk.length]) for start, chunk in zip(starts, chunks, strict=True)]


def changed(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """The value with a part replaced, moved by one, added or taken away."""
    if depth and rng.random() < 0.15:
        return rng.choice(OTHERS)
    if isinstance(value, tuple | list) and value:
        parts = list(value)
        position = rng.randrange(len(parts))
        parts[position] = changed(parts[position], rng, depth + 1)
        return parts[: -1 if rng.random() < 0.05 else None]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 2))
    return value


def mutated(entries: list[Any], rng: random.Random) -> list[Any]:
    found = list(entries)
    for _ in range(rng.choice((1, 2, 4))):
        position, way = rng.randrange(len(found)), rng.random()
        if way < 0.75:
            found[position] = changed(found[position], rng)
        elif way < 0.85:
            del found[position]
        elif way < 0.95:
            found.insert(rng.randrange(len(found)), found[position])
        else:
            found[0], found[position] = found[position], found[0]
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_entry_ends_no_machine(entries, seed, tmp_path, played):
    rng = random.Random(seed)
    encode, path = Encoder().encode, tmp_path / "x.rec"
    found = mutated(entries, rng)
    try:
        body = b"".join(pack(encode(entry)) for entry in found)
    except TensordError:
        return  # a number that no entry can have
    path.write_bytes(head_line({"devices": ["cpu:0", "sim:0"]}) + body)
    try:
        played("vm", "serial")
        bisect(path, [spec_of("vm"), spec_of("serial")], {}, at=rng.randrange(1, 40))
    except ConnectionLost:
        raise
    except TensordError as error:
        assert error.message  # noqa: PT017
