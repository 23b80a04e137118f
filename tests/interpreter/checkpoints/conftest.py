"""No test of checkpoints waits for a disk. Tests that check flushes intercept the calls (calls.py)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108 - of a folder with a name of its own


@pytest.fixture(autouse=True)
def _flushed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.fsync` only checks its descriptor."""
    monkeypatch.setattr(os, "fsync", os.fstat)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder for many small files, in memory if the system has such a file system, since a disk is slow."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="tensord-tests-", dir=MEMORY) as folder:
        yield Path(folder)
