"""The command line in this process, and a machine to run it on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.client.cli.main import main
from tensord.client.session.session import Session

DEVICES = ["cpu:0", "sim:0"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """Run the command line in this process: exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The address of `watched`'s machine."""
    return f"local:{tmp_path.name}"


@pytest.fixture
def watched(make_session: Callable[..., Session], address: str) -> Session:
    """A session that has done some work, on a machine that the command line reaches at `address`."""
    session = make_session(address, devices=DEVICES)
    weights = session.asarray(np.ones((256, 256), np.float32))
    session.publish("weights", weights)
    session.keep = [weights, weights.to_device("sim:0") @ weights.to_device("sim:0"), weights.T]  # type: ignore[attr-defined]
    session.sync()
    return session
