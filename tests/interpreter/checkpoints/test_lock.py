"""Finding the writer of a directory of checkpoints without taking its lock."""

from __future__ import annotations

import os

from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.lock import holder


def test_the_process_that_writes_is_named_for_as_long_as_it_does(tmp_path):
    assert holder(tmp_path) is None
    with CheckpointDirectory.open(tmp_path, create=True):
        assert holder(tmp_path) == f"process {os.getpid()}"
    assert holder(tmp_path) is None
    assert (tmp_path / "lock").exists()


def test_the_lock_is_free_once_the_directory_is_closed_although_a_child_has_its_descriptor_yet(tmp_path):
    directory = CheckpointDirectory.open(tmp_path, create=True)
    the_child_s = os.dup(directory._lock)
    directory.close()
    CheckpointDirectory.open(tmp_path).close()
    os.close(the_child_s)


def test_what_the_file_says_is_not_believed(tmp_path):
    with CheckpointDirectory.open(tmp_path, create=True):
        (tmp_path / "lock").write_text("anything\n")
        assert holder(tmp_path) == "another process"


def test_the_lock_of_another_directory_is_none_of_ours(tmp_path):
    with CheckpointDirectory.open(tmp_path / "a", create=True):
        pass
    with CheckpointDirectory.open(tmp_path / "b", create=True):
        assert holder(tmp_path / "a") is None
