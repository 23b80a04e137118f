"""Durable names: on the disk when publishing returns, by the next durable sync, or at an interval."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import socket
import sys
import threading
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.requests.answers import Answers
from tensord.client.tensor.tensor import Tensor
from tensord.client.transport.replies import Reply
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.checkpoints.record import INNER_SEPARATOR
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.durability.job import CheckpointJob
from tensord.vm.durability.restoring import look

from ..puppet import Puppet
from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones, store_of, until
from .test_checkpoints import in_checkpoint


def lasting(path: Path, **options: object) -> list[Any]:
    """Devices with a directory for durable names."""
    return ["cpu:0", "sim:0", {"name": "store:0", "durable": str(path / "there"), **options}]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def text_in(path: Path, name: str) -> str:
    """The text of a routine in the last generation."""
    with CheckpointReader.open(path) as reader:
        generation = reader.latest().generation
        assert generation is not None
        return reader.read_text(generation.routines[name])


def test_a_durable_name_is_on_the_disk_when_publishing_returns(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x, y = s.asarray(ones(3), device="sim:0"), s.asarray(ones(4))
    s.publish("x", x, durable=True)
    assert in_checkpoint(there)["x"].tolist() == [1, 1, 1]
    s.publish("passing", y)
    s.publish("y", y, durable=True)
    assert sorted(in_checkpoint(there)) == ["x", "y"]
    s.unpublish("x")
    s.sync(durable=True)
    assert list(in_checkpoint(there)) == ["y"]
    assert_sound(s)


def test_writes_in_place_are_there_after_the_next_durable_sync(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(3))
    s.publish("x", x, durable=True)
    x += 1
    s.sync()
    assert in_checkpoint(there)["x"][0] == 1
    s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 2
    files = sorted(path.name for path in there.iterdir())
    s.sync(durable=True)
    assert sorted(path.name for path in there.iterdir()) == files  # nothing has changed, so nothing is written


def test_a_routine_is_on_the_disk_with_what_it_captures_when_publishing_returns(
    make_session, tmp_path, there, monkeypatch
):
    s = make_session(devices=lasting(tmp_path))
    w = s.asarray(ones(2), device="sim:0")
    add = s.routine(lambda x: x + w).link(w)
    ask_ready = Answers.ask_ready

    def go_on(answers: Answers, tensor: Tensor) -> Reply:
        device_of(s, "sim:0").resume("compute")
        return ask_ready(answers, tensor)

    monkeypatch.setattr(Answers, "ask_ready", go_on)
    with held(s, "sim:0", "compute"):
        w += 1
        s.publish("add", add, durable=True)
    assert in_checkpoint(there)[f"add{INNER_SEPARATOR}(captured 0)"][0] == 2


def test_a_group_is_durable_with_the_next_durable_sync(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(3))
    with s.atomic():
        x += 1
        s.publish("x", x, durable=True)
    s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 2


def test_an_error_is_raised_where_it_is_published_and_the_last_value_stays(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(3), device="sim:0")
    s.publish("x", x, durable=True)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    failed = x + 1.0
    with pytest.raises(td.KernelError):
        s.publish("x", failed, durable=True)
    with pytest.raises(
        td.FileError, match=r"the latest value of 'x' is not on the disk: .*; write it anew, or unpublish it"
    ):
        s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 1


def test_a_value_that_is_not_there_yet_keeps_its_last_one(make_session, tmp_path, there):
    s = make_session("local:durable", devices=lasting(tmp_path))
    other = make_session("local:durable", devices=lasting(tmp_path))
    x = s.asarray(ones(3), device="sim:0")
    s.publish("x", x, durable=True)
    other.publish("y", other.asarray(2.0), durable=True)
    with held(s, "sim:0", "compute"):
        x += 1
        s.flush()
        with pytest.raises(
            td.FileError, match="the latest value of 'x' is not on the disk: its value is not computed yet"
        ):
            other.sync(durable=True)
        assert in_checkpoint(there)["x"][0] == 1
    s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 2


def test_who_asks_while_names_are_written_waits_for_the_next_time(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(3))
    s.publish("x", x, durable=True)
    store_of(s).hold("save")
    engine = machine_of(s).engine
    told: list[Any] = []
    x += 1
    s.sync()
    with machine_of(s).inside():
        engine.keep_durable(lambda report, error: told.append((report, error)))
    x += 1
    s.sync()
    with machine_of(s).inside():
        engine.keep_durable(lambda report, error: told.append((report, error)))
        engine.keep_durable(lambda report, error: told.append((report, error)))
    store_of(s).resume("save")
    assert machine_of(s).wait_until(lambda: len(told) == 3, WAIT)
    assert [error for _, error in told] == [None] * 3
    assert in_checkpoint(there)["x"][0] == 3


def test_a_checkpoint_in_their_directory_holds_up_nobody(make_session, tmp_path, there):
    s = make_session("local:holding", devices=lasting(tmp_path))
    other = make_session("local:holding", devices=lasting(tmp_path))
    x, y = s.asarray(ones(2), device="sim:0"), other.asarray(ones(2))
    other.publish("y", y, durable=True)
    with held(s, "sim:0", "compute"):
        s.publish("x", x + 1)
        taken = s.checkpoint(there)
        s.flush()
        y += 1
        other.publish("y", y, durable=True)
        assert list(taken.wait(WAIT)["failed"]) == ["x"]
        assert in_checkpoint(there)["y"][0] == 2


def test_a_failed_flush_is_told_and_the_next_one_writes_anew(make_session, tmp_path, there, monkeypatch):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(3))
    s.publish("x", x, durable=True)
    x += 1

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(td.FileError, match="Input/output error"):
            s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 1
    s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 2


def test_the_end_of_a_machine_writes_nothing(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path, interval=3600))
    x = s.asarray(ones(3))
    s.publish("x", x, durable=True)
    x += 1
    s.sync()
    s.close()
    assert in_checkpoint(there)["x"][0] == 1


class NotedJob(CheckpointJob):
    """Signals its commit."""

    committed = threading.Event()

    def commit(self) -> dict[str, Any]:
        report = super().commit()
        self.committed.set()
        return report


def test_names_are_written_at_the_interval_although_nobody_drives_or_has_a_handle(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path, interval=0.001))
    machine = machine_of(s)
    machine.watch_period = inf  # the interval passes when the test says so
    x = s.asarray(ones(3))
    s.publish("x", x, durable=True)
    x += 1
    s.sync()
    del x
    gc.collect()
    s.sync()
    until(s, lambda: not machine.engine.live)
    assert machine.pause(awake=False) is not None  # the background thread comes back
    NotedJob.committed.clear()
    machine.engine.admission.durable.checkpoints.job = NotedJob
    machine.watch()
    assert NotedJob.committed.wait(WAIT)
    assert in_checkpoint(there)["x"][0] == 2
    until(s, lambda: not machine.engine.live)
    assert s.checkpoint(there).wait(WAIT)["failed"] == {}


def test_a_machine_in_which_nothing_changes_sleeps_in_spite_of_an_interval(make_session, tmp_path):
    s = make_session(devices=lasting(tmp_path, interval=0.001))
    machine = machine_of(s)
    machine.watch_period = inf  # the interval passes when the test says so
    x, y = s.asarray(ones(3)), s.asarray(ones(3), device="sim:0")
    s.publish({"x": x, "y": y}, durable=True)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    y += 1
    x += 1
    with pytest.raises(td.KernelError):
        y.wait()
    del x, y
    gc.collect()
    s.sync()
    until(s, lambda: not machine.engine.live)
    machine.failures.close()  # the failure is in the log
    assert machine.pause(awake=False) is not None
    machine.watch()
    until(s, lambda: not machine.engine.live)
    assert machine.pause(awake=False) is None


def test_restored_names_stay_durable(make_session, tmp_path, there):
    s = make_session("local:one", devices=lasting(tmp_path))
    s.publish("x", s.asarray(ones(3)), durable=True)
    s.close()
    other = make_session("local:two", devices=lasting(tmp_path))
    other.restore(there)
    x = other.lookup("x")
    x += 1
    other.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 2


def test_a_machine_without_a_directory_says_so(make_session):
    s = make_session(devices=["cpu:0"])
    with pytest.raises(td.ProtocolError, match='"durable": "/path"'):
        s.publish("x", s.asarray(1.0), durable=True)
    with pytest.raises(td.ProtocolError, match="keeps no durable names"):
        s.sync(durable=True)
    assert s.names() == []


def test_names_that_cannot_be_written_are_told_and_nothing_ends(make_session):
    s = make_session(devices=["cpu:0"])
    machine = machine_of(s)
    told: list[Any] = []
    with machine.inside():
        machine.engine.keep_durable(lambda report, error: told.append((report, str(error))))
    assert [(report, "keeps no durable names" in error) for report, error in told] == [(None, True)]
    assert (s.asarray(1.0) + 1).item() == 2


def test_a_machine_with_durable_names_has_a_cpu_device(make_session, tmp_path):
    with pytest.raises(td.MetadataError, match="durable names are written from a cpu device"):
        make_session(devices=["sim:0", {"name": "store:0", "durable": str(tmp_path)}])


KILLED = """
s = td.connect("local", devices=["cpu:0", {{"name": "store:0", "durable": {!r}}}])
x = s.asarray(np.zeros(5))
s.publish("x", x, durable=True)
for n in range(3):
    x += 1
    s.sync(durable=True)
x += 1
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_synced_survives_a_kill(there):
    with Puppet.start() as process, pytest.raises(EOFError):
        process.do(KILLED.format(str(there)))
    np.testing.assert_array_equal(in_checkpoint(there)["x"], [3] * 5)


def test_names_that_swap_their_values_are_written(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x, y = s.asarray(ones(2)), s.asarray(ones(2, value=2))
    s.publish("best", x, durable=True)
    s.publish("last", y, durable=True)
    s.publish({"best": y, "last": x}, durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"best": 2, "last": 1}


def test_a_name_whose_tensor_has_another_home_is_written(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(2))
    s.publish("x", x, durable=True)
    s.publish("x", x.to_device("sim:0"), durable=True)
    s.restore(there)
    assert s.lookup("x").device == "sim:0"


def test_an_older_generation_that_was_restored_is_the_last_one_after_a_durable_sync(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(2))
    s.publish("x", x, durable=True)
    x += 1
    s.sync(durable=True)
    s.restore(there, generation=1)
    s.sync(durable=True)
    assert in_checkpoint(there)["x"][0] == 1


def test_durable_names_that_are_not_restored_stay(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    s.publish({"a": s.asarray(ones(2)), "b": s.asarray(ones(2, value=2))}, durable=True)
    s.close()
    s = make_session(devices=lasting(tmp_path))
    c = s.asarray(ones(2, value=3))
    s.publish("c", c, durable=True)
    for n in range(3):
        c += 1
        s.sync(durable=True)
        assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 1, "b": 2, "c": 4 + n}
    s.restore(there, ["a"])
    s.unpublish("a")
    s.sync(durable=True)
    assert sorted(in_checkpoint(there)) == ["b", "c"]


def test_what_one_block_changes_is_written_together(make_session, tmp_path, there):
    s = make_session("local:together", devices=lasting(tmp_path))
    other = make_session("local:together", devices=lasting(tmp_path))
    a, b, c = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0"), s.asarray(ones(2))
    s.publish({"a": a, "b": b}, durable=True)
    s.publish("c", c, durable=True)
    with held(s, "sim:0", "compute"):
        with s.atomic():
            a += 1
            b += 1
        c += 1
        s.flush()
        with pytest.raises(td.FileError, match="the latest value of 'b' is not on the disk"):
            other.sync(durable=True)
        assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 1, "b": 1, "c": 2}
    s.sync(durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 2, "b": 2, "c": 2}
    with held(s, "sim:0", "compute"):
        b += 1  # on its own
        a += 1
        s.flush()
        with pytest.raises(td.FileError, match="the latest value of 'b' is not on the disk"):
            other.sync(durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 3, "b": 2, "c": 2}


def test_blocks_that_have_a_name_in_common_are_written_together(make_session, tmp_path, there):
    s = make_session("local:chained", devices=lasting(tmp_path))
    other = make_session("local:chained", devices=lasting(tmp_path))
    a, b, c = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0"), s.asarray(ones(2))
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        s.publish(name, tensor, durable=True)

    @s.routine
    def both(x, y):
        x += 1
        y += 1

    both(s.asarray(ones(2)), s.asarray(ones(2)))
    with held(s, "sim:0", "compute"):
        with s.atomic():
            a += 1
            b += 1
        with s.atomic():
            both(a, c)
        s.flush()
        with pytest.raises(td.FileError):
            other.sync(durable=True)
        assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 1, "b": 1, "c": 1}
    s.sync(durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 3, "b": 2, "c": 2}


def test_a_group_with_an_error_keeps_what_all_of_it_was(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    a, b = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0")
    s.publish({"a": a, "b": b}, durable=True)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    with s.atomic():
        a += 1
        b += 1
    with pytest.raises(td.FileError):
        s.sync(durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 1, "b": 1}
    s.call("add", [s.asarray(ones(2), device="sim:0"), 4], out=[b])
    s.sync()
    s.sync(durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 2, "b": 5}


def test_a_routine_is_written_together_with_what_its_block_changes(make_session, tmp_path, there):
    s = make_session("local:routine", devices=lasting(tmp_path))
    other = make_session("local:routine", devices=lasting(tmp_path))
    a = s.asarray(ones(2), device="sim:0")
    plus, times = s.routine(lambda x: x + 1), s.routine(lambda x: x * 2)
    s.publish({"f": plus.link(a), "a": a}, durable=True)
    with held(s, "sim:0", "compute"):
        with s.atomic():
            a += 1
            s.publish("f", times.link(a), durable=True)
        s.flush()
        with pytest.raises(td.FileError, match="the latest value of 'a' is not on the disk"):
            other.sync(durable=True)
        assert "multiply" not in text_in(there, "f")
        assert in_checkpoint(there)["a"][0] == 1
    s.sync(durable=True)
    assert "multiply" in text_in(there, "f")
    assert in_checkpoint(there)["a"][0] == 2


def test_a_name_that_a_block_takes_away_stays_until_the_rest_of_the_block_is_there(make_session, tmp_path, there):
    s = make_session("local:renamed", devices=lasting(tmp_path))
    other = make_session("local:renamed", devices=lasting(tmp_path))
    x, y = s.asarray(ones(2), device="sim:0"), s.asarray(ones(2))
    s.publish("old", x, durable=True)
    s.publish("y", y, durable=True)
    with held(s, "sim:0", "compute"):
        x += 1
        with s.atomic():
            s.publish("new", x, durable=True)
            s.unpublish("old")
        y += 1
        s.flush()
        for _ in range(2):
            with pytest.raises(
                td.FileError, match="the latest value of 'new' is not on the disk: its value is not computed yet"
            ):
                other.sync(durable=True)
            assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"old": 1, "y": 2}
        y += 1
        y.wait()
        s.checkpoint(there, ["y"]).wait(WAIT)
        assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"old": 1, "y": 3}
    s.sync(durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"new": 2, "y": 3}


def test_a_routine_that_a_block_takes_away_stays_until_the_rest_of_the_block_is_there(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    w, x = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0")
    s.publish("f", s.routine(lambda x: x + w).link(w), durable=True)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    with s.atomic():
        x += 1
        s.publish("x", x, durable=True)
        s.unpublish("f")
    for _ in range(2):
        with pytest.raises(td.FileError, match="the latest value of 'x' is not on the disk"):
            s.sync(durable=True)
        assert {name: value[0] for name, value in in_checkpoint(there).items()} == {
            f"f{INNER_SEPARATOR}(captured 0)": 1
        }
        assert "add" in text_in(there, "f")
    s.unpublish("x")
    s.sync(durable=True)
    assert in_checkpoint(there) == {}


def test_a_checkpoint_of_some_names_is_of_all_that_blocks_have_changed_with_them(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    a, b, c, d = (s.asarray(ones(2)) for _ in range(4))
    add = s.routine(lambda x: x + c).link(a)
    for name, value in {"a": a, "b": b, "c": c, "d": d, "add": add}.items():
        s.publish(name, value, durable=True)
    with s.atomic():
        a += 1
        b += 1
    with s.atomic():
        b += 1
        c += 1
    d += 1
    s.sync()
    report = s.checkpoint(there, ["a"]).wait(WAIT)
    assert (report["names"], report["failed"]) == (4, {})
    found = {name: value[0] for name, value in in_checkpoint(there).items()}
    assert found == {"a": 2, "b": 3, "c": 2, "d": 1, f"add{INNER_SEPARATOR}(captured 0)": 2}


def test_a_checkpoint_of_some_names_leaves_the_others_together(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    a, b, c = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0"), s.asarray(ones(2))
    s.publish({"a": a, "b": b}, durable=True)
    s.publish("c", c, durable=True)
    with s.atomic():
        a += 1
        b += 1
    c += 1
    s.sync()
    s.checkpoint(there, ["c"]).wait(WAIT)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 1, "b": 1, "c": 2}
    with held(s, "sim:0", "compute"):
        b += 1
        s.flush()
        with pytest.raises(
            td.FileError, match="the latest value of 'a' is not on the disk: it belongs together with 'b'"
        ):
            s.publish("a", a, durable=True)
    assert {name: value[0] for name, value in in_checkpoint(there).items()} == {"a": 1, "b": 1, "c": 2}


def values_in(there: Path) -> dict[str, float]:
    """The first element of each value of the last generation."""
    return {name: value[0] for name, value in in_checkpoint(there).items()}


def test_restoring_some_names_leaves_other_names_of_their_tensors_on_the_disk(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    w = s.asarray(ones(2))

    @s.routine
    def step(x):
        return x + w

    step(s.asarray(ones(2)))
    s.publish({"a": w, "b": w, "step": step}, durable=True)
    before = values_in(there)
    s.close()
    for names in ("b", "step"):
        s = make_session(devices=lasting(tmp_path))
        s.restore(there, [names])
        s.publish("c", s.asarray(ones(2, value=3)), durable=True)
        assert values_in(there) == before | {"c": 3}
        s.close()
    s = make_session(devices=lasting(tmp_path))
    s.restore(there)
    assert s.lookup("step")(s.asarray(ones(2))).tolist() == [2, 2]


def test_names_that_are_written_while_others_are_restored_stay(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    s.publish({"a": s.asarray(ones(2)), "b": s.asarray(ones(2, value=2))}, durable=True)
    engine = machine_of(s).engine
    with machine_of(s).inside():
        ongoing = engine.admission.durable.restoring(look(there, 0, ["a"], deep=False), ["a"])
        ongoing.go_on()
    s.publish("x", s.asarray(ones(2, value=3)), durable=True)
    with machine_of(s).inside():
        engine.admission.durable.publish(engine.scheduler.system_session, ongoing)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    s.publish("x", s.asarray(ones(2), device="sim:0") + 1.0)
    with pytest.raises(td.FileError, match="the latest value of 'x' is not on the disk"):
        s.sync(durable=True)
    assert values_in(there) == {"a": 1, "b": 2, "x": 3}
    s.unpublish("a")
    with pytest.raises(td.FileError):
        s.sync(durable=True)
    assert values_in(there) == {"b": 2, "x": 3}


def test_a_failed_value_keeps_what_an_earlier_run_had_under_its_name(make_session, tmp_path, there):
    s = make_session(devices=lasting(tmp_path))
    s.publish("x", s.asarray(ones(2)), durable=True)
    s.close()
    s = make_session(devices=lasting(tmp_path))
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    with pytest.raises(td.KernelError):
        s.publish("x", s.asarray(ones(2), device="sim:0") + 1.0, durable=True)
    with pytest.raises(td.FileError):
        s.sync(durable=True)
    assert values_in(there) == {"x": 1}


def test_a_generation_is_there_although_old_files_cannot_be_removed(make_session, tmp_path, there, monkeypatch, caplog):
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(2), device="sim:0")
    s.publish("x", x, durable=True)
    (stuck,) = there.glob("values-*")
    unlink = os.unlink

    def refuse(name: str, **options: Any) -> None:
        if name == stuck.name:
            raise PermissionError(1, "Operation not permitted")
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    for n in range(2, 8):
        x += 1
        s.sync(durable=True)
        assert values_in(there) == {"x": n}
    assert stuck.exists()
    assert len(list(there.iterdir())) <= 7  # two generations, their values, the one that stays, the lock, the format
    assert caplog.text.count("old files are still there") == 1
    note = s.checkpoint(there).wait(WAIT)["note"]
    assert note == f"old files are still there: {stuck}: cannot be removed: Operation not permitted; remove it by hand"
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    x += 1.0
    with pytest.raises(td.FileError, match="the latest value of 'x' is not on the disk"):
        s.sync(durable=True)
    assert values_in(there) == {"x": 7}
    monkeypatch.undo()
    assert s.checkpoint(there, keep=1).wait(WAIT)["note"] == ""
    assert not stuck.exists()


def test_a_file_that_cannot_be_opened_for_a_moment_ends_the_checkpoint_and_no_name_is_lost(
    make_session, tmp_path, there, monkeypatch
):
    s = make_session(devices=lasting(tmp_path))
    s.publish("old", s.asarray(ones(2)), durable=True)
    s.close()
    s = make_session(devices=lasting(tmp_path))
    x = s.asarray(ones(2), device="sim:0")
    s.publish("x", x, durable=True)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    x += 1.0
    opened, files = os.open, sorted(there.glob("values-*"))
    assert len(files) == 2  # one with `old`, the other with `x`
    for n, file in enumerate(files):

        def refuse(name: Any, *args: Any, _refused: str = file.name, **options: Any) -> int:
            if name == _refused:
                raise OSError(errno.EMFILE, "Too many open files")
            return opened(name, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(td.FileError, match="Too many open files"):
                s.publish("y", s.asarray(ones(2, value=2 + n)), durable=True)
        s.publish("y", s.asarray(ones(2, value=2 + n)), durable=True)
        assert values_in(there) == {"old": 1, "x": 1, "y": 2 + n}
    for file in there.glob("values-*"):
        file.unlink()
    s.publish("y", s.asarray(ones(2, value=5)), durable=True)  # removed names do not come back
    assert values_in(there) == {"y": 5}


def test_one_machine_has_the_directory_until_it_is_closed(make_session, tmp_path, there):
    first = make_session("local:first", devices=lasting(tmp_path))
    same = make_session("local:first", devices=lasting(tmp_path))
    second = make_session("local:second", devices=lasting(tmp_path))
    a, b = first.asarray(ones(2)), second.asarray(ones(2, value=2))
    second.sync(durable=True)  # the second machine has no durable names
    assert not there.exists()
    first.publish("a", a, durable=True)
    same.publish("c", same.asarray(ones(2, value=3)), durable=True)
    assert second.restore(there)["names"] == 2
    told = f"is in use by process {os.getpid()}; stop it, close its machine, or name another directory"
    for _ in range(2):
        with pytest.raises(td.FileError, match=told):
            second.publish("b", b, durable=True)
    first.close()
    same.sync(durable=True)
    with pytest.raises(td.FileError, match=told):
        second.sync(durable=True)
    same.close()
    second.publish("b", b, durable=True)
    assert values_in(there) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_child_does_not_keep_the_directory(make_session, tmp_path, there):
    s = make_session("local:first", devices=lasting(tmp_path))
    s.publish("a", s.asarray(ones(2)), durable=True)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        theirs.send(b"!")
        theirs.recv(1)  # until the test has ended
        os._exit(0)
    try:
        assert ours.recv(1) == b"!"
        kept = [str(fd.readlink()) for fd in Path(f"/proc/{child}/fd").iterdir()]
        assert not [path for path in kept if path.startswith(str(there))]
        s.close()
        s = make_session("local:second", devices=lasting(tmp_path))
        s.publish("b", s.asarray(ones(2, value=2)), durable=True)
    finally:
        ours.close()
        theirs.close()
        os.waitpid(child, 0)
    assert values_in(there) == {"a": 1, "b": 2}


@pytest.mark.parametrize("only", ["the directory", "what is in it", "the values", "the last generation"])
def test_what_somebody_has_removed_is_written_anew_by_the_next_durable_sync(make_session, tmp_path, there, only):
    s = make_session(devices=lasting(tmp_path))
    x, y = s.asarray(ones(2)), s.asarray(ones(2, value=2))
    s.publish({"x": x, "y": y}, durable=True)
    y += 1
    s.sync(durable=True)
    if only == "the directory":
        shutil.rmtree(there)
    for path in there.glob({"what is in it": "*", "the last generation": "generation-00000002"}.get(only, "values-*")):
        path.unlink()
    y += 1
    s.sync(durable=True)
    assert values_in(there) == {"x": 1, "y": 4}
    if only in ("the directory", "what is in it"):
        shutil.rmtree(there)
        s.sync(durable=True)  # nothing has changed
        assert values_in(there) == {"x": 1, "y": 4}
    assert_sound(s)


def test_a_checkpoint_of_which_files_are_gone_is_to_be_taken_again(make_session, tmp_path):
    s = make_session(devices=["cpu:0"])
    s.publish("x", s.asarray(ones(2)))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    shutil.rmtree(tmp_path / "there")
    with pytest.raises(td.FileError, match="take the checkpoint again"):
        s.checkpoint(tmp_path / "there").wait(WAIT)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    assert values_in(tmp_path / "there") == {"x": 1}


def test_a_failed_value_keeps_what_another_machine_has_written_since(make_session, tmp_path):
    first, second = (make_session(f"local:{name}", devices=["cpu:0", "sim:0"]) for name in ("first", "second"))
    x = first.asarray(ones(2), device="sim:0")
    first.publish("x", x)
    first.checkpoint(tmp_path / "there").wait(WAIT)
    second.publish("x", second.asarray(ones(2, value=2)))
    second.checkpoint(tmp_path / "there", keep=1).wait(WAIT)
    device_of(first, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    x += 1.0
    assert first.checkpoint(tmp_path / "there").wait(WAIT)["failed"].keys() == {"x"}
    assert values_in(tmp_path / "there") == {"x": 2}


def test_a_name_that_was_unpublished_goes_although_its_generation_was_told_as_failed(
    make_session, tmp_path, there, monkeypatch
):
    s = make_session(devices=lasting(tmp_path))
    x, y = s.asarray(ones(2)), s.asarray(ones(2, value=2))
    s.publish({"x": x, "y": y}, durable=True)
    x += 1
    flush, unlink = os.fsync, os.unlink

    def fail(fd: int) -> None:
        if (there / "generation-00000002").exists():
            raise OSError(5, "Input/output error")
        flush(fd)

    def stay(name: str, **options: Any) -> None:
        if not name.startswith("generation"):
            unlink(name, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        patch.setattr(os, "unlink", stay)
        with pytest.raises(td.FileError, match="Input/output error"):
            s.sync(durable=True)
    assert values_in(there) == {"x": 2, "y": 2}
    s.unpublish("y")
    s.sync(durable=True)
    assert values_in(there) == {"x": 2}


def test_a_durable_name_of_a_global_tensor_is_that_of_its_parts(make_session, tmp_path, there):
    s = make_session(devices=[*lasting(tmp_path), "sim:1"])
    p = td.placement(["sim:0", "sim:1"])
    s.publish("x", s.asarray(ones(2)), durable=True)
    for publish in (s.publish, atomically(s)):
        publish("x", s.global_tensor([1.0, 2.0], p, td.split(0)))
        s.sync(durable=True)
        assert {name: each.tolist() for name, each in in_checkpoint(there).items()} == {
            "x @0 of 2: split(0)": [1.0], "x @1 of 2: split(0)": [2.0],
        }  # fmt: skip
        publish("x", s.asarray(ones(2)))
        s.sync(durable=True)
        assert list(in_checkpoint(there)) == ["x"]
    s.publish("x", s.global_tensor([1.0, 2.0], p))
    with s.atomic():
        s.unpublish("x")
    s.sync(durable=True)
    assert in_checkpoint(there) == {}
    assert_sound(s)


def test_a_durable_name_keeps_its_value_until_all_parts_of_the_next_are_there(make_session, tmp_path, there):
    s = make_session(devices=[*lasting(tmp_path), "sim:1"])
    p = td.placement(["sim:0", "sim:1"])
    for publish in (s.publish, atomically(s)):
        s.publish("x", s.asarray(ones(1)), durable=True)
        parts = [s.xp.take(s.asarray(ones(1), name), s.asarray([n], name)) for n, name in enumerate(p.names)]
        publish("x", s.global_tensor(parts=parts, placement=p, layout=td.split(0)))
        with pytest.raises(td.FileError, match="x @"):
            s.sync(durable=True)
        assert list(in_checkpoint(there)) == ["x"]
        publish("x", s.global_tensor([1.0, 2.0], p, td.split(0)))
        s.sync(durable=True)
        assert len(in_checkpoint(there)) == 2
    s.unpublish("x")
    assert_sound(s)


def atomically(s: Any) -> Any:
    """`publish` in a group."""

    def publish(name: str, value: Any) -> None:
        with s.atomic():
            s.publish(name, value)

    return publish
