"""Directories of checkpoints: sound ones come back as they were, mangled ones are refused, or hold what can be read."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from ..interpreter.checkpoints.mangling import check_manifest, manifest_around, manifest_of, try_mangled


def try_checkpoints(rnd: random.Random) -> None:
    """A sound directory, and the same with errors in it."""
    with tempfile.TemporaryDirectory() as folder:
        try_mangled(Path(folder), rnd)


def try_manifest(source: bytes) -> None:
    """Any bytes, also where a manifest has some."""
    check_manifest(source)
    check_manifest(manifest_around(source))
    check_manifest(manifest_of([source]))
    check_manifest(manifest_of([[0, 1, 0, 1, 1], [1, 7, 10], source]))
