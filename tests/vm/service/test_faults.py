"""A fault of the daemon itself: all clients are told, the log has the traceback, and the daemon exits with status 1."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import tensord as td
from tests.daemon import Daemon
from tests.puppet import eventually

WAIT = 20.0

BROKEN = "tests.vm.service.broken_daemons"


@pytest.fixture
def faulty(tmp_path: Path):
    """A daemon that breaks in a `sync`, in the cancellation of a session with tensors, and in answers about itself."""
    options = ("--device", "cpu:0", "--device", "sim:0")
    with Daemon.start(tmp_path, *options, main=(BROKEN, "faulty")) as daemon:
        yield daemon


@pytest.mark.parametrize("where", ["retire", "cancel"])
def test_after_a_fault_of_the_engine_every_client_is_told_and_the_daemon_ends(faulty, where):
    """In a pass, and in a message outside of the passes, whose fault would otherwise count as its sender's."""
    victim, idle = faulty.connect(), faulty.connect()
    x = victim.asarray(np.ones(4))
    x.wait()
    told: list[str] = []

    def wait() -> None:
        try:
            victim.sync() if where == "retire" else x.wait()
        except td.ConnectionLost as error:
            told.append(str(error))

    if where == "cancel":
        victim.cancel()
    thread = threading.Thread(target=wait)
    thread.start()
    assert faulty.process.wait(WAIT) == 1
    thread.join(WAIT)
    assert len(told) == 1
    assert f"made by the test in {where}" in told[0]
    with pytest.raises(
        td.ConnectionLost, match=f"it has a fault, see its log: RuntimeError: made by the test in {where}"
    ):
        idle.sync()
    assert "Traceback" in faulty.log
    assert "the daemon ends after a fault of its own" in faulty.log
    victim.close()
    idle.close()


def test_answers_that_cannot_be_sent_end_their_connection_alone(faulty):
    victim, other = faulty.connect(), faulty.connect()
    with pytest.raises(td.TensordError, match="did not expect this"):
        victim.stats()
    assert (other.asarray([1.0]) + 1.0).tolist() == [2.0]
    assert "a fault of the daemon" in faulty.log
    victim.close()
    other.close()


HANGING = """
devices = ["cpu:0", {name = "sim:0", faults = [{kind = "hang", label = "matmul", nth = 1}]}]
grace = 0.2
hang_after = 0.1
"""


def test_a_kernel_that_is_given_up_makes_the_status_1(tmp_path):
    (tmp_path / "hanging.toml").write_text(HANGING)
    with Daemon.start(tmp_path, "--config", str(tmp_path / "hanging.toml"), main=(BROKEN, "impatient")) as daemon:
        with daemon.connect() as session:
            x = session.asarray(np.eye(2), device="sim:0").wait(WAIT)
            product = x @ x
            session.flush()
            eventually(lambda: [one["op"] for one in session.stats()["hung"]] == ["matmul"])
            assert not product.is_ready()
        assert daemon.stop() == 1
