"""A directory of checkpoints has one real path, whatever links lead to it."""

from __future__ import annotations

import numpy as np

import tensord as td


def test_values_restored_by_a_link_outlive_their_generation_collected_by_the_real_path(tmp_path):
    directory, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(directory)
    with td.connect("local", devices=["cpu:0"]) as session:
        session.publish("x", session.asarray(np.arange(5)))
        session.checkpoint(directory).wait()
    with td.connect("local", devices=["cpu:0"]) as session:
        session.restore(link)
        restored = session.lookup("x")
        session.publish("x", session.asarray(np.zeros(5)))
        assert session.checkpoint(directory, keep=1).wait()["collected"] == 1
        assert restored.tolist() == [0, 1, 2, 3, 4]


def test_what_was_restored_by_a_link_is_not_written_anew(tmp_path):
    directory, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(directory)
    with td.connect("local", devices=["cpu:0"]) as session:
        session.publish("x", session.asarray(np.arange(5)))
        session.checkpoint(directory).wait()
    with td.connect("local", devices=["cpu:0"]) as session:
        session.restore(link)
        assert session.checkpoint(directory).wait()["written"] == 0
