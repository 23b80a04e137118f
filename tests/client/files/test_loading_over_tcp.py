"""Files of the daemon's host that clients load over tcp: only those below the directories that the daemon names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensord as td
from tests.ports import free_port

from ...daemon import Daemon


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the daemon names, with a file, and one beside it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "inside").mkdir()
    save_file({f"w{n}": np.full(3, n, np.float32) for n in range(600)}, folder / "inside" / "model.safetensors")
    save_file({"secret": np.ones(3)}, folder / "outside.safetensors")
    (folder / "inside" / "link").symlink_to(folder / "outside.safetensors")
    os.mkfifo(folder / "inside" / "fifo")
    return folder


@pytest.fixture(scope="module")
def address(models: Path) -> Iterator[str]:
    """A daemon that listens at tcp, too."""
    config = models / "tensord.toml"
    config.write_text(f'devices = ["cpu:0", "sim:0"]\nfiles = ["{models / "inside"}"]\n')
    where = f"tcp://127.0.0.1:{free_port()}"
    with Daemon.start(models, "--config", str(config), "--address", where):
        yield where


def test_a_file_below_a_named_directory_is_loaded(address: str, models: Path) -> None:
    with td.connect(address) as s:
        found = s.load(models / "inside" / "model.safetensors", device="sim:0")
        assert len(found) == 600
        assert found["w7"].shape == (3,)
        assert (found["w599"] + 1).tolist() == [600] * 3
        assert list(s.load(models / "inside" / "model.safetensors", ["w3"])) == ["w3"]


def test_nothing_else_is(address: str, models: Path) -> None:
    with td.connect(address) as s:
        for path in (models / "outside.safetensors", models / "inside" / "link", "model.safetensors", "/etc/passwd"):
            with pytest.raises(td.FileError, match="is not a file below the directories"):
                s.load(path)
        with pytest.raises(td.FileError, match="is not a file below"):
            s.load(models / "inside" / ".." / "outside.safetensors")
        with pytest.raises(td.MetadataError, match="not a regular file"):
            s.load(models / "inside" / "fifo")
        with pytest.raises(td.FileError, match="No such file"):
            s.load(models / "inside" / "nothing")
        with pytest.raises(td.MetadataError, match="has no tensor 'v'"):
            s.load(models / "inside" / "model.safetensors", "v")
        with pytest.raises(td.MetadataError, match="save where it runs"):
            s.save(models / "x", {"x": s.asarray(1.0)})
        with pytest.raises(td.ProtocolError, match="own user, over ipc"):
            s.checkpoint(models / "there").wait()
