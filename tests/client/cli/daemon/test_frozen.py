"""No command waits for ever: when a daemon freezes after its greeting, each command ends and says what to do."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.client.cli.daemon import patient
from tensord.client.transport import questions
from tensord.client.transport.link import DealerSocket

from ....daemon import Daemon
from ....puppet import paused

Run = Callable[..., tuple[Any, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, daemon: Daemon) -> Path:
    """The folder in which commands run: with a file, and a checkpoint of the daemon, which has a name."""
    there = tmp_path_factory.mktemp("folder")
    np.save(there / "x.npy", np.ones(4))
    with daemon.connect() as session:
        session.publish("x", session.asarray(np.ones(4)))
        session.checkpoint(there / "checkpoints").wait()
    return there


@pytest.fixture
def frozen(daemon: Daemon, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon that stands still as soon as it has greeted a command, until the end of the test."""
    monkeypatch.chdir(folder)
    greet = DealerSocket.greet
    with ExitStack() as still:

        def then_freeze(link: DealerSocket) -> Any:
            welcome = greet(link)
            still.enter_context(paused(daemon))
            return welcome

        monkeypatch.setattr(DealerSocket, "greet", then_freeze)
        yield daemon


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "tensors --by name",
        "evict x",
        "top --once",
        "top",
        "trace show",
        "trace record -o run.trace",
        "checkpoint checkpoints",
        "restore checkpoints",
        "load x.npy",
        "run --name x",
    ],
)
def test_it_ends_with_what_to_do(run: Run, frozen: Daemon, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (questions, patient):
        monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.1)
    monkeypatch.setattr(patient, "PROBE_PERIOD", 0.01)
    code, out, err = run(*command.split(), "--address", frozen.address)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"the daemon at {frozen.address} has not answered for 0.1 s: it hangs, its process is stopped, or " in err
    assert "`tensord stop --now`" in err


@pytest.mark.parametrize("command", ["status", "top --once", "restore checkpoints"])
def test_ctrl_c_ends_the_wait(run: Run, frozen: Daemon, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    greet = DealerSocket.greet  # freezes the daemon

    def then_interrupt(link: DealerSocket) -> Any:
        welcome = greet(link)
        interrupt.start()
        return welcome

    monkeypatch.setattr(DealerSocket, "greet", then_interrupt)
    code, out, err = run(*command.split(), "--address", frozen.address)
    interrupt.join()
    assert (code, out, err.strip()) == (0 if command.startswith("top") else 130, "", "")
