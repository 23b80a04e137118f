"""No command waits for ever: a daemon that freezes once it has greeted ends each of them, with what to do."""

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
from tensord.client.transport.link import Link

from ....daemon import Daemon
from ....puppet import paused

Run = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon with a name, which stands still as soon as it has greeted a command."""
    greet = Link.greet
    with Daemon.start(tmp_path) as daemon, daemon.connect() as session, ExitStack() as still:
        session.publish("x", session.asarray(np.ones(4)))
        session.checkpoint(tmp_path / "checkpoints").wait()

        def then_freeze(link: Link) -> Any:
            welcome = greet(link)
            still.enter_context(paused(daemon))
            return welcome

        monkeypatch.setattr(Link, "greet", then_freeze)
        yield daemon
        still.close()


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
def test_it_ends_with_what_to_do(
    run: Run, frozen: Daemon, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones(4))
    for module in (questions, patient):
        monkeypatch.setattr(module, "SILENCE", 0.1)
    monkeypatch.setattr(patient, "PERIOD", 0.01)
    code, out, err = run(*command.split(), "--address", frozen.address)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"the daemon at {frozen.address} has not answered for 0.1 s: it hangs, or its process is stopped" in err
    assert "`tensord stop --now`" in err


@pytest.mark.parametrize("command", ["status", "top --once", "restore checkpoints"])
def test_ctrl_c_ends_the_wait(
    run: Run, frozen: Daemon, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    greet = Link.greet  # freezes the daemon

    def then_interrupt(link: Link) -> Any:
        welcome = greet(link)
        interrupt.start()
        return welcome

    monkeypatch.setattr(Link, "greet", then_interrupt)
    code, out, err = run(*command.split(), "--address", frozen.address)
    interrupt.join()
    assert (code, out, err.strip()) == (0 if command.startswith("top") else 130, "", "")
