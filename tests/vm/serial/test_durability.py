"""Checkpoints on the serial engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    with td.connect("local:serial", devices=["cpu:0"], engine="serial") as session:
        yield session


@pytest.fixture
def damaged(session: Session, tmp_path: Path) -> Path:
    """A checkpoint of `good`, `add`, which captures it, and `bad`, whose value is damaged."""
    good = session.asarray(np.ones(3))
    bad = session.asarray(np.zeros(1 << 19))
    session.publish({"good": good, "bad": bad, "add": session.routine(lambda x: x + good).link(good)})
    session.checkpoint(tmp_path / "there").wait()
    session.unpublish(*session.names())
    largest = max((tmp_path / "there").glob("values-*"), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(100)
        file.write(b"x")
    return tmp_path / "there"


def test_a_damaged_value_is_named_and_the_others_are_restored(session, damaged):
    report = session.restore(damaged)
    assert list(report["failed"]) == ["bad"]
    assert "checksum" in report["failed"]["bad"]
    assert session.names() == ["add", "good"]


def test_only_names_that_are_asked_for_are_read(session, damaged):
    report = session.restore(damaged, ["add"])
    assert (report["names"], report["failed"]) == (1, {})
    np.testing.assert_array_equal(session.lookup("add")(session.asarray(np.ones(3))).numpy(), [2] * 3)


def test_there_are_no_durable_names(session):
    x = session.asarray(1.0)
    for ask in (lambda: session.publish("x", x, durable=True), lambda: session.sync(durable=True)):
        with pytest.raises(td.ProtocolError, match="the serial engine keeps no durable names"):
            ask()
    assert session.names() == []


def test_what_was_restored_has_no_holder_but_its_names_and_handles(session, tmp_path):
    session.publish("x", session.asarray(np.ones(3)))
    session.checkpoint(tmp_path).wait()
    session.restore(tmp_path)
    x = session.lookup("x")
    assert [row["holders"] for row in session._core.answers.query("names") if row["name"] == "x"] == [2]
    np.testing.assert_array_equal(x.numpy(), np.ones(3))
