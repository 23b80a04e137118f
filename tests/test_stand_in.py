"""Tests that name one device run on another one, and name the features that it lacks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tensord.streams.catalogue import KINDS
from tensord.streams.sim.sim import SimDevice

from . import stand_in
from .daemon import Daemon


@pytest.fixture
def sim_for_cpu(monkeypatch):
    monkeypatch.setenv(stand_in.VARIABLE, "cpu=sim:0")
    with stand_in.installed():
        yield


@pytest.mark.usefixtures("sim_for_cpu")
def test_the_device_opens_under_the_name_of_the_other(make_session, machine_of):
    session = make_session(devices=[{"name": "cpu:0", "memory": 4000}])
    device = machine_of(session).devices["cpu:0"]
    assert isinstance(device, SimDevice)
    assert device.limit == 4000
    assert (session.asarray(np.ones(3)) + 1).tolist() == [2, 2, 2]


def test_without_the_variable_nothing_is_replaced(monkeypatch):
    monkeypatch.delenv(stand_in.VARIABLE, raising=False)
    before = dict(KINDS)
    with stand_in.installed():
        assert before == KINDS
    assert stand_in.unfit(SimpleNamespace()) == ""


def test_daemons_have_it_too(monkeypatch, tmp_path):
    monkeypatch.setenv(stand_in.VARIABLE, "cpu=sim:0")
    with Daemon.start(tmp_path, "--device", "cpu:0") as daemon, daemon.connect() as session:
        x = session.asarray(np.ones(3), device="cpu:0").wait()
        assert session.stats()["transfers"]["cpu:0"]["h2d"]["count"] == 1
        assert x.tolist() == [1, 1, 1]


def test_what_it_cannot_do_is_told(monkeypatch):
    monkeypatch.setenv(stand_in.VARIABLE, "cpu=cuda:0")
    assert "more than one device" in stand_in.too_many(["cpu:0", "sim:0"])
    assert stand_in.too_many(["cpu:0"]) == stand_in.too_many(None) == ""

    def holds_one_up() -> None:
        make_gate()  # type: ignore[name-defined]  # noqa: F821 - never called

    test = SimpleNamespace(
        originalname="holds_one_up", name="holds_one_up", path=SimpleNamespace(name="x.py"), function=holds_one_up
    )
    assert "no function that waits" in stand_in.unfit(test)
    effects = SimpleNamespace(originalname="anything", name="anything[1]", path=SimpleNamespace(name="test_effects.py"))
    assert stand_in.unfit(effects) == stand_in.EFFECTS


def test_the_tests_that_are_left_out_exist():
    text = "\n".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    files = {path.name for path in Path(__file__).parent.rglob("test_*.py")}
    for name in (*stand_in.OF_THE_HOST, *stand_in.OF_NO_GPU):
        assert name in files or f"def {name.partition('[')[0]}(" in text, name
