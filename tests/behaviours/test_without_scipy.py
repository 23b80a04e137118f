"""Sessions without SciPy: all functions work but the special ones, whose error names the process that lacks SciPy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tensord as td

from ..daemon import Daemon

# It makes `import scipy` fail in a Python process whose path begins with its folder.
HIDING = "import sys\nsys.modules['scipy'] = None\n"
CALLS = """
import sys
import numpy as np
import tensord as td
for given in ({"engine": "vm"}, {"engine": "serial"}):
    with td.connect("local", devices=["cpu:0", "sim:0"], **given) as session:
        x = session.asarray([0.5, 1.0])
        assert "erf" in dir(session.xp.special)
        assert np.allclose(session.nn.gelu(x, approximate="none").numpy(), [0.34573123, 0.84134475])
        for device in ("cpu:0", "sim:0"):
            try:
                session.xp.special.erf(x.to_device(device))
            except td.MetadataError as error:
                print(error.message)
"""
ON_A_DAEMON = """
import sys
import tensord as td
session = td.connect(sys.argv[1])
print(session.xp.special.cbrt(session.asarray([8.0])).tolist())
"""


@pytest.fixture
def hidden(tmp_path) -> dict[str, str]:
    """The environment of a process without SciPy."""
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))}


def output_of(environment: dict[str, str], *arguments: str) -> str:
    """The output of Python with these arguments."""
    command, environment = [sys.executable, "-c", *arguments], {**os.environ, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout  # noqa: S603


def advice(where: str) -> str:
    """The text of the error of `erf`."""
    return f'erf has no kernel on cpu:0: {where} lacks SciPy; install it there: pip install "tensord[special]"'


def test_in_this_process(hidden):
    assert set(output_of(hidden, CALLS).splitlines()) == {advice("this process")}


def test_in_a_daemon(hidden, tmp_path):
    daemon = Daemon.start(tmp_path, **hidden)
    try:
        with td.connect(daemon.address) as session:
            x = session.asarray([0.5])
            with pytest.raises(td.MetadataError) as caught:
                session.xp.special.erf(x)
            assert caught.value.message == advice("the daemon")
            assert session.nn.gelu(x, approximate="none").shape == (1,)
    finally:
        assert daemon.stop() == 0


def test_a_client_needs_none(hidden, tmp_path):
    daemon = Daemon.start(tmp_path)
    try:
        assert output_of(hidden, ON_A_DAEMON, daemon.address) == "[2.0]\n"
    finally:
        daemon.stop()
