"""`tensord load`: tensors of a file, published by a daemon; `--list`, which needs no daemon."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensord as td

from ....puppet import eventually

VALUES: dict[str, Any] = {"layer.w": np.arange(6, dtype=np.float32).reshape(2, 3), "layer.b": np.ones(3, np.int16)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(VALUES, path)
    return path


@pytest.fixture
def brain(tmp_path: Path) -> Path:
    """A file with a tensor of bfloat16, and one of float32."""
    header = {
        "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "z": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "brain.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes([0x80, 0x3F, 0, 0]) + bytes(4))
    return path


def test_the_tensors_of_a_file_are_published_and_outlive_the_command(run, daemon, model):
    code, out, err = run("load", model, "--as", "m/", "--device", "sim:0", "--address", daemon.address)
    assert (code, err) == (0, "")
    assert "2 names published" in out
    with daemon.connect() as session:
        assert session.names() == ["m/layer.b", "m/layer.w"]
        for name, values in VALUES.items():
            tensor = session.lookup(f"m/{name}")
            assert tensor.device == "sim:0"
            np.testing.assert_array_equal(tensor.numpy(), values)
        session.unpublish("m/layer.b", "m/layer.w")


def test_names_of_the_file_can_be_chosen(run, daemon, model):
    out = run("load", model, "layer.b", "--json", "--address", daemon.address)[1]
    row = {"name": "layer.b", "shape": [3], "dtype": "int16", "bytes": 6, "error": ""}
    assert json.loads(out) == {"file": str(model), "format": "safetensors", "published": [row], "failed": {}}
    with daemon.connect() as session:
        assert session.names() == ["layer.b"]
        session.unpublish("layer.b")
    code, _, err = run("load", model, "layer.c", "--address", daemon.address)
    assert code == 1
    assert "has no tensor 'layer.c' (it has: " in err


def test_a_dtype_that_is_missing_fails_for_its_tensor_alone(run, daemon, brain):
    code, out, _ = run("load", brain, "--json", "--address", daemon.address)
    found = json.loads(out)
    assert code == 1
    assert [row["name"] for row in found["published"]] == ["z"]
    assert "is BF16" in found["failed"]["a"]
    code, out, _ = run("load", brain, "--raw", "--address", daemon.address)
    assert code == 0
    with daemon.connect() as session:
        assert session.lookup("a").numpy().tolist() == [0x3F80, 0]
        session.unpublish("a", "z")


def test_an_owned_value_stays_when_its_file_changes_and_the_doctor_names_the_file(run, daemon, model):
    for own in ([], ["--own"]):
        run("load", model, "layer.w", "--as", "own/" if own else "", *own, "--address", daemon.address)
    with daemon.connect() as session:
        kept = session.lookup("own/layer.w")
        np.testing.assert_array_equal(kept.numpy(), VALUES["layer.w"])  # read now
        model.write_bytes(model.read_bytes() + b" ")
        np.testing.assert_array_equal(kept.numpy(), VALUES["layer.w"])
        with pytest.raises(td.FileError, match="has changed"):
            session.lookup("layer.w").to_device("sim:0").wait()
        eventually(lambda: session._core.answers.query("status")["files"]["changed"])
        found = json.loads(run("doctor", "--json", "--address", daemon.address)[1])
        assert [str(model) in one["message"] for one in found if one["check"] == "files"] == [True]
        session.unpublish("layer.w", "own/layer.w")


class TestList:
    @pytest.fixture(autouse=True)
    def nobody_runs(self, monkeypatch, tmp_path):
        monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def test_it_says_what_is_in_the_file(self, run, model):
        code, out, err = run("load", model, "--list")
        assert (code, err) == (0, "")
        assert "layer.w  float32[2, 3]   24 B" in out
        assert "safetensors: 2 tensors, 30 B" in out
        rows = json.loads(run("load", model, "--list", "--json")[1])["tensors"]
        assert {row["name"]: row["shape"] for row in rows} == {"layer.b": [3], "layer.w": [2, 3]}

    def test_a_dtype_that_is_missing_is_a_remark(self, run, brain):
        code, out, _ = run("load", brain, "--list")
        assert code == 0
        assert "is BF16, a dtype that tensord does not support" in out
        assert "uint16[2]" in run("load", brain, "--list", "--raw")[1]

    def test_what_is_about_publishing_is_refused(self, run, model):
        for options in (("--as", "x/"), ("--device", "cpu:0"), ("--own",)):
            code, _, err = run("load", model, "--list", *options)
            assert code == 2
            assert "--list publishes nothing: leave out --as, --device and --own" in err

    def test_other_formats_are_read_and_other_files_refused(self, run, tmp_path):
        np.savez(tmp_path / "x.npz", one=np.ones(2), two=np.zeros((3, 1), np.int8))
        assert "npz: 2 tensors, 19 B" in run("load", tmp_path / "x.npz", "--list")[1]
        (tmp_path / "x.txt").write_text("nothing of the kind")
        code, out, err = run("load", tmp_path / "x.txt", "--list")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "is of no known format" in err
