"""Directories of checkpoints: valid ones are read back unchanged; corrupted ones are refused, or their intact part
is read."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from ..interpreter.checkpoints.mangling import check_manifest, manifest_around, manifest_of, try_mangled


def try_checkpoints(rnd: random.Random) -> None:
    """Try a valid directory, then the same directory with errors."""
    with tempfile.TemporaryDirectory() as folder:
        try_mangled(Path(folder), rnd)


def try_manifest(source: bytes) -> None:
    """Try any bytes as a manifest, and as the payload of a manifest."""
    check_manifest(source)
    check_manifest(manifest_around(source))
    check_manifest(manifest_of([source]))
    check_manifest(manifest_of([[0, 1, 0, 1, 1], [1, 7, 10], source]))
