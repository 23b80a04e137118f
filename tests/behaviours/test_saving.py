"""Saving tensors: saves read in program order, a file is there whole or not at all, failures are reported."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tensord as td
from tensord.client.files.writes import COMMITS
from tensord.interpreter.errors import CaptureError
from tensord.streams.faults import Fault, FaultKind

from ..daemon import Daemon
from ..forked import run_script
from .looking_inside import WAIT, assert_sound, device_of, held, ones, store_of, until

DEVICES = ["cpu:0", "sim:0"]
VALUES: dict[str, Any] = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "flags": np.array([True, False]),
    "i": np.arange(5, dtype=np.int16),
    "one": np.array(2.5),
    "none": np.zeros((0, 3)),
}


def names_in(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return [path.name for path in folder.iterdir()]


def run_program(folder: Path, program: str, *arguments: str) -> str:
    """Run a program in a process of its own, and return its stderr."""
    path = folder / "program.py"
    path.write_text(program)
    done = run_script(str(path), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_saved_is_what_the_package_reads(make_session, tmp_path, device):
    s = make_session(devices=DEVICES)
    path = tmp_path / "model.safetensors"
    tensors = {name: s.asarray(values, device=device) for name, values in VALUES.items()}
    tensors |= {"turned": tensors["w"].T, "part": tensors["w"][::2, 1:3]}
    saving = s.save(path, tensors, {"made": "here"})
    assert saving.wait(WAIT) == path
    assert saving.done
    found = load_file(path)
    for name, values in {**VALUES, "turned": VALUES["w"].T, "part": VALUES["w"][::2, 1:3]}.items():
        np.testing.assert_array_equal(found[name], values)
    for name, tensor in s.load(path).items():
        np.testing.assert_array_equal(tensor.numpy(), found[name])
    assert names_in(tmp_path) == [path.name]
    assert_sound(s)


def test_a_later_write_waits_and_is_not_in_the_file(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(100))
    store_of(s).hold("save")
    saving = s.save(tmp_path / "x", {"x": x})
    x += 1
    s.flush()
    assert not saving.done
    store_of(s).resume("save")
    saving.wait(WAIT)
    assert load_file(tmp_path / "x")["x"][0] == 1
    assert x.numpy()[0] == 2
    assert s.trace().verify() == []


def test_save_returns_before_the_values_are_there(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(100), device="sim:0")
    with held(s, "sim:0", "compute"):
        y = x * 3
        saving = s.save(tmp_path / "y", {"y": y})
        assert not saving.done
    saving.wait(WAIT)
    assert load_file(tmp_path / "y")["y"][0] == 3


def test_save_returns_before_a_loop_in_front_of_it_ends(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x, w = s.asarray(0.0, device="sim:0"), s.asarray(ones(3))
    savings: list[Any] = []
    with held(s, "sim:0", "compute"):
        s.while_loop(lambda n: n < 3, lambda n: n + 1, x)
        w += 1
        saver = threading.Thread(target=lambda: savings.append(s.save(tmp_path / "w", {"w": w})))
        saver.start()
        saver.join(WAIT)
        returned = bool(savings)
    saver.join()
    assert returned
    savings[0].wait(WAIT)
    assert load_file(tmp_path / "w")["w"][0] == 2


def test_a_save_that_is_given_up_before_the_machine_has_the_file_writes_into_no_other_one(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x, w = s.asarray(0.0, device="sim:0"), s.asarray(ones(3))
    with held(s, "sim:0", "compute"):
        s.while_loop(lambda n: n < 3, lambda n: n + 1, x)
        saving = s.save(tmp_path / "w", {"w": w})
        fd = saving._file.writer.fd
        saving.give_up()
        others = [(tmp_path / f"other{n}").open("wb") for n in range(4)]
        assert fd in [other.fileno() for other in others]
    with pytest.raises(td.FileError, match="given up"):
        saving.wait(WAIT)
    for other in others:
        other.close()
    assert [(tmp_path / f"other{n}").stat().st_size for n in range(4)] == [0] * 4
    assert len(names_in(tmp_path)) == 4


def test_a_file_that_the_machine_cannot_open_is_an_error_of_the_save(make_session, tmp_path, monkeypatch):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(3))

    def refuse(*_: object, **__: object) -> None:
        raise td.QuotaError("no file more")

    with monkeypatch.context() as patch:
        patch.setattr(s._core.transport._session.files, "open", refuse)
        for tensors in ({"x": x}, {}):
            with pytest.raises(td.QuotaError, match="no file more"):
                s.save(tmp_path / "x", tensors).wait(WAIT)
    s.sync()
    s.save(tmp_path / "x", {"x": x}).wait(WAIT)
    assert names_in(tmp_path) == ["x"]
    assert_sound(s)


def test_the_error_of_a_tensor_is_that_of_its_file_and_the_old_one_stays(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    path = tmp_path / "x"
    save_file({"x": ones(3)}, path)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    x = s.asarray(ones(3), device="sim:0")
    failed = x + 1.0
    saving = s.save(path, {"good": x, "bad": failed})
    with pytest.raises(td.KernelError, match=r"test_saving\.py"):
        saving.wait(WAIT)
    assert list(load_file(path)) == ["x"]
    assert names_in(tmp_path) == ["x"]
    np.testing.assert_array_equal(x.numpy(), ones(3))
    assert_sound(s)


@pytest.mark.parametrize("call", ["pwritev", "fsync"])
def test_a_disk_that_fails_leaves_the_old_file(make_session, tmp_path, monkeypatch, call):
    s = make_session(devices=DEVICES)
    path = tmp_path / "x"
    save_file({"x": ones(3)}, path)
    y = s.asarray(ones(5))

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        saving = s.save(path, {"y": y})
        with pytest.raises(td.FileError, match=rf"^{path}: cannot be (written|flushed): No space left"):
            saving.wait(WAIT)
    assert list(load_file(path)) == ["x"]
    assert names_in(tmp_path) == ["x"]
    s.save(path, {"y": y}).wait(WAIT)
    assert list(load_file(path)) == ["y"]


def test_a_failure_that_nobody_waits_for_is_logged(make_session, tmp_path, caplog):
    s = make_session(devices=DEVICES)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    s.save(tmp_path / "x", {"x": s.asarray(ones(3), device="sim:0") + 1.0})
    with caplog.at_level(logging.WARNING, "tensord.client"):
        s.close()
    assert any("was not saved" in record.getMessage() for record in caplog.records)


def test_a_session_is_closed_once_its_files_are_there(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    for n in range(20):
        s.save(tmp_path / f"x{n}", {"x": s.asarray(ones(1000, value=n))})
    s.close()
    for n in range(20):
        assert load_file(tmp_path / f"x{n}")["x"][0] == n


def test_the_end_of_the_program_waits_for_its_files(tmp_path):
    program = (
        "import tensord as td, numpy as np, sys\n"
        "s = td.connect('local')\n"
        "s.save(sys.argv[1], {'x': s.asarray(np.arange(5))})\n"
    )
    assert run_program(tmp_path, program, str(tmp_path / "x")) == ""
    assert load_file(tmp_path / "x")["x"].tolist() == [0, 1, 2, 3, 4]


def test_an_interrupt_of_the_close_gives_up_what_is_not_saved_yet(make_session, tmp_path, monkeypatch, caplog):
    s = make_session(devices=DEVICES)
    store_of(s).hold("save")
    saving = s.save(tmp_path / "x", {"x": s.asarray(ones(3))})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(saving), "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s.close()
    assert names_in(tmp_path) == []
    assert [record.getMessage() for record in caplog.records] == [f"{saving!r} was interrupted, and is given up"]
    store_of(s).resume("save")
    with pytest.raises(td.FileError, match="given up"):
        saving.wait(WAIT)
    assert names_in(tmp_path) == []


INTERRUPTED = """
import signal, sys, threading
import numpy as np
import tensord as td

s = td.connect(sys.argv[1])
s.save(sys.argv[2], {"x": s.asarray(np.ones(4), "sim:0") + 5})
waits = td.client.files.writes.FileWriting._await

def interrupted(self):
    signal.raise_signal(signal.SIGINT)
    waits(self)

td.client.files.writes.FileWriting._await = interrupted
"""


def test_an_interrupt_of_the_programs_end_is_one_line_and_leaves_no_file(tmp_path):
    config = tmp_path / "slow.toml"
    config.write_text('devices = ["cpu:0", {name = "sim:0", latency = 3.0}]\n')
    folder = tmp_path / "folder"
    folder.mkdir()
    with Daemon.start(tmp_path, "--config", str(config)) as daemon:
        command = [sys.executable, "-c", INTERRUPTED, daemon.address, str(folder / "x")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
        daemon.kill()  # to stop, it would wait for the sum
    assert done.stderr == f"<saving {folder / 'x'}> was interrupted, and is given up\n"
    assert names_in(folder) == []


def test_what_was_cancelled_is_not_saved(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    store_of(s).hold("save")
    saving = s.save(tmp_path / "x", {"x": s.asarray(ones(3))})
    s.cancel()
    store_of(s).resume("save")
    with pytest.raises(td.CancelledError):
        saving.wait(WAIT)
    assert names_in(tmp_path) == []
    s.restart()
    s.save(tmp_path / "x", {"x": s.asarray(ones(3))}).wait(WAIT)


def test_more_than_the_host_holds_is_saved_from_the_devices(make_session, tmp_path):
    s = make_session(devices=[{"name": "cpu:0", "memory": 8 * 1024}, {"name": "sim:0", "memory": 64 * 1024}])
    xs = {f"x{n}": s.xp.full((256,), float(n), dtype=np.float32, device="sim:0") for n in range(40)}
    s.save(tmp_path / "x", xs).wait(WAIT)
    found = load_file(tmp_path / "x")
    assert [found[f"x{n}"][0] for n in range(40)] == list(range(40))
    assert_sound(s)


def test_a_value_larger_than_the_host_is_saved(make_session, tmp_path):
    store = {"name": "store:0", "directory": str(tmp_path), "quota": 1 << 30}
    s = make_session(devices=[{"name": "cpu:0", "memory": 8 * 1024}, "sim:0", store])
    value = np.random.default_rng(1).random((50, 60))
    x = s.asarray(value, device="sim:0")
    s.save(tmp_path / "x", {"x": x, "turned": x.T, "part": x[3:5]}).wait(WAIT)
    found = load_file(tmp_path / "x")
    for name, wanted in {"x": value, "turned": value.T, "part": value[3:5]}.items():
        np.testing.assert_array_equal(found[name], wanted)
    assert x.residency() == {"sim:0": "valid"}
    assert_sound(s)


def test_what_cannot_be_saved_is_an_error_at_the_line(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(3))
    with pytest.raises(td.FileError, match=r"nowhere: cannot be opened.*test_saving\.py"):
        s.save(tmp_path / "nowhere" / "x", {"x": x})
    with pytest.raises(td.MetadataError, match="complex128"):
        s.save(tmp_path / "x", {"x": s.asarray(1j)})
    with pytest.raises(td.MetadataError, match="dict of tensors"):
        s.save(tmp_path / "x", [x])
    with pytest.raises(td.MetadataError, match="expected a tensor"):
        s.save(tmp_path / "x", {"x": 3})
    (tmp_path / "folder").mkdir()
    with pytest.raises(td.FileError, match=f"^{tmp_path / 'folder'}: .*not a regular file"):
        s.save(tmp_path / "folder", {"x": x})
    with pytest.raises(CaptureError, match="no file can be saved"):
        s.routine(lambda x: s.save(tmp_path / "x", {"x": x}))(x)
    assert names_in(tmp_path) == ["folder"]


def test_a_loaded_file_may_be_saved_over_itself(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    path: Path = tmp_path / "x"
    save_file({"x": ones(5), "y": ones(3)}, path)
    found = s.load(path)
    found["x"] += 1
    s.save(path, found).wait(WAIT)
    assert load_file(path)["x"][0] == 2
    np.testing.assert_array_equal((found["y"] + 1).numpy(), ones(3, value=2))


def test_of_two_saves_to_one_path_the_later_one_stays(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    for n in range(30):
        first = s.save(tmp_path / "x", {"x": s.asarray(ones(3, value=n))})
        second = s.save(tmp_path / "x", {"x": s.asarray(ones(3, value=-n))})
        second.wait(WAIT)
        first.wait(WAIT)
        assert load_file(tmp_path / "x")["x"][0] == -n


def test_a_save_that_was_overtaken_ends_and_leaves_the_later_file(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    path = tmp_path / "folder" / "x"
    late, early = s.asarray(ones(3), device="sim:0"), s.asarray(ones(3))
    with held(s, "sim:0", "compute"):
        late += 0
        first = s.save(path, {"x": late})
        other = s.save(tmp_path / "folder" / "y", {"x": late})
        second = s.save(tmp_path / "link" / "x", {"x": early * 2})
        third = s.save(path, {"x": late})
        fourth = s.save(path, {"x": early * 4})
        second.wait(WAIT)
        fourth.wait(WAIT)
        assert not first.done
    for saving in (first, other, third):
        assert saving.wait(WAIT) == saving.path
    assert load_file(path)["x"][0] == 4
    assert sorted(names_in(tmp_path / "folder")) == ["x", "y"]
    assert_sound(s)
    assert not COMMITS._open


def test_a_save_that_was_overtaken_raises_its_own_error(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(3), device="sim:0")
    with held(s, "sim:0", "compute"):
        device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
        first = s.save(tmp_path / "x", {"x": x + 1.0})
        s.save(tmp_path / "x", {"x": s.asarray(ones(3, value=2))}).wait(WAIT)
    with pytest.raises(td.KernelError):
        first.wait(WAIT)
    assert load_file(tmp_path / "x")["x"][0] == 2
    assert names_in(tmp_path) == ["x"]


def test_a_later_save_that_fails_does_not_keep_an_earlier_one_from_its_place(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    late = s.asarray(ones(3), device="sim:0")
    with held(s, "sim:0", "compute"):
        late += 0
        first = s.save(tmp_path / "x", {"x": late})
        device_of(s, "cpu:0").inject(Fault(FaultKind.FAIL, label="add"))
        second = s.save(tmp_path / "x", {"x": s.asarray(ones(3)) + 1.0})
        with pytest.raises(td.KernelError):
            second.wait(WAIT)
    first.wait(WAIT)
    assert load_file(tmp_path / "x")["x"][0] == 1
    assert names_in(tmp_path) == ["x"]
    assert not COMMITS._open


def test_an_earlier_save_does_not_wait_for_a_later_one_that_is_stuck(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    late = s.asarray(ones(3, value=2), device="sim:0")
    with held(s, "sim:0", "compute"):
        late += 0
        first = s.save(tmp_path / "x", {"x": s.asarray(ones(3))})
        second = s.save(tmp_path / "x", {"x": late})
        first.wait(WAIT)
        assert load_file(tmp_path / "x")["x"][0] == 1
    second.wait(WAIT)
    assert load_file(tmp_path / "x")["x"][0] == 2


def test_a_fault_of_one_save_is_told_and_the_next_one_is_there(make_session, tmp_path, monkeypatch):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(3))
    with monkeypatch.context() as patch:
        patch.setattr(COMMITS, "is_overtaken", lambda _target, _saving: 1 // 0)
        with pytest.raises(td.FileError, match="was not saved: ZeroDivisionError"):
            s.save(tmp_path / "x", {"x": x}).wait(WAIT)
    s.save(tmp_path / "x", {"x": x}).wait(WAIT)
    assert names_in(tmp_path) == ["x"]


def test_a_session_that_is_dropped_lives_until_its_files_are_there(tmp_path):
    program = (
        "import gc, sys, tensord as td, numpy as np\n"
        "def work():\n"
        "    s = td.connect('local')\n"
        "    s.save(sys.argv[1], {'x': s.asarray(np.arange(5))})\n"
        "work()\n"
        "gc.collect()\n"
    )
    assert run_program(tmp_path, program, str(tmp_path / "x")) == ""
    assert load_file(tmp_path / "x")["x"].tolist() == [0, 1, 2, 3, 4]


def test_what_was_told_is_not_logged_again(make_session, tmp_path, caplog):
    s = make_session(devices=DEVICES)
    for _ in range(5):
        device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
        saving = s.save(tmp_path / "x", {"x": s.asarray(ones(3), device="sim:0") + 1.0})
        with pytest.raises(td.KernelError):
            saving.wait(WAIT)
    assert len(s._core.writes._open) <= 1
    with caplog.at_level(logging.WARNING, "tensord.client"):
        s.close()
    assert not any("was not saved" in record.getMessage() for record in caplog.records)


def test_failures_that_nobody_waits_for_are_told_by_the_next_save_and_kept_no_longer(make_session, tmp_path, caplog):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(3), device="sim:0")
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    failed = x + 1.0
    with caplog.at_level(logging.WARNING, "tensord.client"):
        for n in range(5):
            saving = s.save(tmp_path / f"x{n}", {"x": failed})
            assert len(s._core.writes._open) == 1
            told = [record.getMessage().partition(" was not saved")[0] for record in caplog.records]
            assert told == [str(tmp_path / f"x{m}") for m in range(n)]
            until(s, lambda reply=saving._reply: reply.done)
            assert saving._ended.wait(WAIT)
        s.close()
    assert len(caplog.records) == 5


def test_a_wait_that_is_impossible_raises(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    store_of(s).hold("save")
    saving = s.save(tmp_path / "x", {"x": s.asarray(ones(3))})
    found: list[BaseException] = []

    def wait(_value: Any) -> None:
        try:
            saving.wait(1)
        except td.TensordError as error:
            found.append(error)

    s.effect(wait, s.asarray(1.0))
    s.check_chain()
    assert isinstance(found[0], td.ProtocolError)
    store_of(s).resume("save")
    saving.wait(WAIT)
