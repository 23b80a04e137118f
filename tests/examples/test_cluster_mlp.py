"""Training on two nodes, one of which is killed: it resumes from its file, and ends with the bits of a whole run."""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from examples.own_daemon import OwnDaemon

from ..client.cluster.nodes import Keyed
from ..daemon import Daemon
from ..forked import run_script

ROOT = Path(__file__).parents[2]
SIZES = ["--steps", "6", "--save-every", "2", "--kill-after", "3"]
SAME = "the weights of both runs are the same to the bit"


def run(*arguments: str, ends: int = 0) -> str:
    """The output of the example; it has to end with that status."""
    result = run_script("examples/cluster_mlp.py", *SIZES, *arguments, cwd=ROOT, whole=False)
    assert result.returncode == ends, result.stdout + result.stderr
    return result.stdout + result.stderr


@contextmanager
def forked_daemon(directory, *options, config):
    """As `own_daemon`, with a daemon that starts sooner."""
    home = Path(tempfile.mkdtemp(dir=directory))
    (home / "c.toml").write_text(config)
    with Daemon.start(home, *options, "--config", str(home / "c.toml")) as daemon:
        yield OwnDaemon((daemon.address,), daemon.pid, ())


def test_a_node_is_killed_and_the_bits_are_those_of_a_run_without(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import cluster_mlp
    import own_cluster

    monkeypatch.setattr(own_cluster, "own_daemon", partial(forked_daemon, tmp_path))
    monkeypatch.setattr("sys.argv", ["cluster_mlp.py", *SIZES])
    assert cluster_mlp.main() == 0
    printed = capsys.readouterr().out
    assert "step 3: node1 is killed" in printed
    assert re.search(r"^NodeLost: .*node1", printed, re.MULTILINE)
    assert "all nodes are up again; continuing from step 2" in printed
    assert printed.count("step 6: loss") == 2
    assert printed.endswith(f"{SAME}\n")


def test_on_a_cluster_that_is_up_nothing_is_killed(tmp_path):
    with Keyed(tmp_path) as daemons:
        daemons.start("node0")
        daemons.start("node1")
        daemons.join()
        shutil.copy(next(tmp_path.glob("node0-1-*/server.key")), daemons.keys)
        there = ["--address", daemons.members["node0"].address, "--keys", str(daemons.keys)]
        printed = run(*there, "--file", str(tmp_path / "weights.npz"))
        few = run(*there, "--kind", "cpu", ends=1)
    assert printed.endswith(f"{SAME}\n")
    assert "killed" not in printed
    assert few.startswith("cluster_mlp: this example needs two nodes with two cpu devices each")
    with np.load(tmp_path / "weights.npz") as saved:
        assert saved["steps"] == 6
