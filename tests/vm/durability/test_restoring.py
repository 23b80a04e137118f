"""Restoring proceeds in pieces, and a damaged entry of a generation affects its own name alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.record import INNER_SEPARATOR
from tensord.interpreter.types.meta import Meta
from tensord.vm.durability import restoring
from tensord.vm.durability.contents import CAPTURED, DEVICE, DEVICES, OF, SAME
from tensord.vm.durability.restoring import look

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def write(directory: Path, tensors: dict[str, dict[str, Any]], routines: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """A generation with the value `W` under each name, with these fields."""
    with CheckpointDirectory.open(directory, create=True) as opened:
        writer = opened.begin()
        for name, fields in tensors.items():
            writer.start(name, Meta.of(W.shape, W.dtype), fields)
            writer.append(W)
        for name, (text, fields) in routines.items():
            writer.routine(name, text, fields)
        writer.commit()


def test_the_driving_thread_makes_a_piece_at_a_time_and_binds_all_names_at_once(
    make_session, machine_of, tmp_path, monkeypatch
):
    monkeypatch.setattr(restoring, "PIECE", 4)
    write(tmp_path, {f"w{n}": {} for n in range(10)}, {})
    s = make_session()
    engine = machine_of(s).engine
    ongoing = engine.admission.durable.restoring(look(tmp_path, 0, (), deep=False))
    more: list[bool] = []
    while not more or more[-1]:
        more.append(ongoing.go_on())
        assert s.names() == []
    assert more == [True, True, False]
    report = engine.admission.durable.publish(engine.scheduler.system_session, ongoing)
    assert (report["names"], report["failed"]) == (10, {})
    for n in range(10):
        np.testing.assert_array_equal(s.lookup(f"w{n}").numpy(), W)


@pytest.mark.parametrize("device", [{"no": "name"}, (1, 2), 7, None, "cuda:9"])
def test_a_device_that_is_none_is_said_of_its_name_alone(make_session, tmp_path, device):
    write(tmp_path, {"odd": {DEVICE: device}, "even": {DEVICE: "cpu:0"}}, {})
    s = make_session()
    found = s.restore(tmp_path)
    assert {*found["failed"], *found["moved"]} == {"odd"}
    np.testing.assert_array_equal(s.lookup("even").numpy(), W)


@pytest.mark.parametrize(
    "fields", [{}, {CAPTURED: 3}, {CAPTURED: ("w",), DEVICES: 1}, {CAPTURED: ({},)}, {CAPTURED: ("x",), DEVICES: ()}]
)
def test_a_routine_with_senseless_fields_fails_alone(make_session, tmp_path, fields):
    s = make_session()
    w = s.asarray(W)
    add = s.routine(lambda x: x + w)
    s.publish("w", w)
    s.publish("add", add.link(s.asarray(W)))
    s.checkpoint(tmp_path / "first").wait()
    text = look(tmp_path / "first", 0, (), deep=False).programs["add"]
    write(tmp_path / "odd", {"w": {}, "other": {}}, {"add": (str(text), fields), "none": ("no program", {})})
    s.unpublish("w", "add")
    found = s.restore(tmp_path / "odd")
    assert set(found["failed"]) == {"add", "none"}
    assert s.names() == ["other", "w"]


def test_what_is_captured_of_something_senseless_harms_no_name_that_is_asked_for(make_session, tmp_path):
    write(tmp_path, {"odd": {OF: {}}, "even": {}}, {})
    s = make_session()
    assert s.restore(tmp_path, ["even"], deep=True)["names"] == 1


@pytest.mark.parametrize("serial", [False, True])
def test_a_routine_captures_what_belongs_to_it_under_whatever_names(make_session, tmp_path, serial):
    s = make_session()
    w = s.asarray(W)
    s.publish("add", s.routine(lambda x: x + w).link(s.asarray(W)))
    s.checkpoint(tmp_path / "first").wait()
    found = look(tmp_path / "first", 0, (), deep=False)
    text, fields = str(found.programs["add"]), found.fields["add"]
    s = make_session(engine="serial", expect_empty=False) if serial else s
    for owner in ("add", "other", None):
        path, name = tmp_path / str(owner), "add (captured 0)"
        write(path, {name: {OF: owner} if owner else {}}, {"add": (text, {**fields, CAPTURED: (name,)})})
        assert set(s.restore(path)["failed"]) == (set() if owner == "add" else {"add"})
    write(tmp_path / "inner", {f"x{INNER_SEPARATOR}": {}, "y": {}}, {})
    assert set(s.restore(tmp_path / "inner")["failed"]) == {f"x{INNER_SEPARATOR}"}
    with pytest.raises(td.MetadataError, match="has no 'add"):
        s.restore(tmp_path / "add", "add (captured 0)")


def test_what_is_damaged_is_said_of_the_names_that_were_asked_for(make_session, tmp_path):
    write(tmp_path, {"a": {}, "b": {}, "inner": {OF: "nobody"}}, {})
    for path in tmp_path.glob("values-*"):
        path.unlink()
    s = make_session()
    assert set(s.restore(tmp_path, "a")["failed"]) == {"a"}
    assert set(s.restore(tmp_path)["failed"]) == {"a", "b", "inner"}


def test_tensors_that_a_session_may_not_have_names_for_are_charged_to_nobody_any_more(
    make_session, machine_of, tmp_path
):
    write(tmp_path, {"a": {}, "b": {}, "same": {SAME: "a"}}, {})
    s = make_session()
    engine = machine_of(s).engine
    session = next(iter(engine.directory.sessions.values()))
    session.limits = replace(session.limits, names=2)
    with pytest.raises(td.QuotaError):
        s.restore(tmp_path)
    assert s.names() == []
    assert engine.scheduler.system_session.account.bytes == 0
