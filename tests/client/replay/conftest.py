"""Recordings of sessions, and replays of the recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tensord.client.replay.bisect import opened_sides
from tensord.client.replay.player import Player
from tensord.client.replay.script import check_ops
from tensord.client.replay.sides import spec_of
from tensord.interpreter.recordings.reader import RecordingReader


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., Player]:
    """played("vm", "serial", mapping={}, **options): the player that has played `recorded`'s file on these machines."""

    def play(*texts: str, mapping: dict[str, str] | None = None, **options: Any) -> Player:
        with RecordingReader(tmp_path / "x.rec") as reader:
            check_ops(reader)
            with opened_sides(reader, [spec_of(text) for text in texts], mapping or {}) as sides:
                player = Player(reader, sides, **options)
                player.play()
                return player

    return play


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Any]:
    """`with recorded(session, **options):` records the session's calls into the file that `played` plays."""

    @contextmanager
    def record(session: Any, **options: Any) -> Iterator[None]:
        with session.record(tmp_path / "x.rec", **options):
            yield

    return record
