"""A directory of checkpoints has one real path, through any links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensord as td


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint of `x`, and `link` beside it, which leads there."""
    directory = tmp_path / "real"
    (tmp_path / "link").symlink_to(directory)
    with td.connect("local", devices=["cpu:0"]) as session:
        session.publish("x", session.asarray(np.arange(5)))
        session.checkpoint(directory).wait()
    return directory


def test_values_restored_by_a_link_outlive_their_generation_collected_by_the_real_path(directory):
    with td.connect("local", devices=["cpu:0"]) as session:
        session.restore(directory.with_name("link"))
        restored = session.lookup("x")
        session.publish("x", session.asarray(np.zeros(5)))
        assert session.checkpoint(directory, keep=1).wait()["collected"] == 1
        assert restored.tolist() == [0, 1, 2, 3, 4]


def test_what_was_restored_by_a_link_is_not_written_anew(directory):
    with td.connect("local", devices=["cpu:0"]) as session:
        session.restore(directory.with_name("link"))
        assert session.checkpoint(directory).wait()["written"] == 0
