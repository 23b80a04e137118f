"""A Ray cluster of two simulated nodes with a tensord node on each, as a process of its own, and commands on it.

Its processes inherit a directory in their environment, by which all of them are found and ended, also after a test
that failed. The process is bound to the end of this one, so an interrupted run leaves no process either.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensord.client.cli.cluster.asking import ask
from tensord.vm.cluster.child import BOUND_SCRIPT

from ....pages import ROOT

LIMIT = 60.0
TENSORD = [sys.executable, "-m", "tensord.client.cli"]
# Runs commands one after the other, which share a connection to Ray: to import and connect takes seconds.
OPERATOR = """
import io, json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # where Ray prints what happens
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from tensord.client.cli.cluster.reaching import reached
from tensord.client.cli.main import main
connection, cluster = ExitStack(), None
with connection:
    for line in sys.stdin:
        words, out, err = json.loads(line), io.StringIO(), io.StringIO()
        name = words[words.index("--name") + 1] if "--name" in words else "tensord"
        if name != cluster:  # a connection is to the supervisors of one cluster
            connection.close()
            connection.enter_context(reached(None, name))
            cluster = name
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main(["cluster", *words])
            except SystemExit as left:
                code = left.code
        print(json.dumps([code, out.getvalue(), err.getvalue()]), file=answers, flush=True)
"""
TOKEN = "t" * 64
OF_RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": TOKEN,
    "RAY_OVERRIDE_RESOURCES": '{"GPU": 2}',  # of each node, even without a GPU
}
DIRECTORIES = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


class TwoNodes:
    """`rows`: of the nodes, from `cluster up`; `keys`: the directory of the user's keys."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="td-", dir="/tmp"))
        self.environment = {**os.environ, **{name: str(self.home / name[4:-4]) for name in DIRECTORIES}}
        self.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self.environment.pop("RAY_ADDRESS", None)
        self.environment |= OF_RAY
        for name in DIRECTORIES:
            Path(self.environment[name]).mkdir(mode=0o700)
        self.log = self.home / "log"
        self.started: list[subprocess.Popen[str]] = []
        arguments = ["cluster", "up", "--simulate", "2", "--device", "cpu:0", "--device", "sim:0", "--json"]
        command = [sys.executable, "-I", "-S", BOUND_SCRIPT, str(os.getpid()), *TENSORD, *arguments]
        try:
            self.process = self.start(command)
            found = json.loads(self.line(self.process))
            assert "error" not in found, (found, self.log.read_text())
        except BaseException:
            self.close()
            raise
        self.environment["RAY_ADDRESS"] = found["ray"]
        self.keys, self.seconds = found["keys"], found["seconds"]
        self.operator = self.start([sys.executable, "-c", OPERATOR])
        self.rows = {row["node"]: row for row in found["nodes"]}

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        with self.log.open("a") as log:
            made = subprocess.Popen(  # noqa: S603 - the command is ours
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment,
                text=True,
                cwd=ROOT,
            )
        self.started.append(made)
        return made

    def line(self, process: subprocess.Popen[str]) -> str:
        """The next line that a process prints."""
        assert process.stdout is not None
        told = process.stdout.readline()
        assert told, self.log.read_text()
        return told

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command on the cluster."""
        assert self.operator.stdin is not None
        self.operator.stdin.write(f"{json.dumps(arguments)}\n")
        self.operator.stdin.flush()
        return subprocess.CompletedProcess(arguments, *json.loads(self.line(self.operator)))

    def told(self, *arguments: str) -> Any:
        """The output of a command with --json; the command has to succeed."""
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, (arguments, ended.stdout[-500:], ended.stderr[-2000:])
        return json.loads(ended.stdout)

    def renew(self) -> dict[str, dict[str, Any]]:
        """The rows as they are now, by node."""
        ended = self.run("status", "--json")
        self.rows = {row["node"]: row for row in json.loads(ended.stdout)["nodes"]}
        return self.rows

    def seen(self, by: str, node: str) -> tuple[str, int]:
        """The state and the incarnation that a daemon knows of a node; "unknown" without a table of members."""
        members = ask(self.rows[by]["ipc"], "members")
        return next(((one["state"], one["incarnation"]) for one in members if one["node"] == node), ("unknown", 0))

    def await_seen(self, by: str, node: str, *wanted: tuple[str, int]) -> float:
        """Seconds until a daemon knows one of these of a node."""
        began = time.monotonic()
        while (now := self.seen(by, node)) not in wanted:
            assert time.monotonic() < began + LIMIT, f"{by} has {node} as {now}, not {wanted}"
            time.sleep(0.01)
        return time.monotonic() - began

    def await_metrics(self, addresses: list[str], wanted: set[str]) -> None:
        """Wait until Ray offers these lines, of whose tags only the node and the device are compared."""
        deadline = time.monotonic() + LIMIT
        while missing := wanted - {line for address in addresses for line in ours(address)}:
            assert time.monotonic() < deadline, f"Ray does not offer {missing}"
            time.sleep(0.2)

    def processes(self) -> dict[int, str]:
        """All processes of the cluster, with their command lines."""
        mark, found = f"{self.home}/".encode(), {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes() and (entry / "stat").read_text().split()[2] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def await_none(self, seconds: float) -> dict[int, str]:
        """The processes that remain after `seconds`; returns early once there are none."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def close(self) -> None:
        """End the remaining processes."""
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for one in self.started:
                one.wait()
        for one in self.started:
            for stream in (one.stdin, one.stdout):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self.home, ignore_errors=True)


def ours(address: str) -> list[str]:
    """The lines about tensord that a metrics agent of Ray offers."""
    with urllib.request.urlopen(address, timeout=LIMIT) as answer:  # noqa: S310 - it is http
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("ray_tensord_")]
    return [re.sub(r"{(.*)}", lambda tags: f"{{{only(tags[1])}}}", line) for line in lines]


def only(tags: str) -> str:
    found = dict(re.findall(r'(\w+)="([^"]*)"', tags))
    return ",".join(f'{name}="{found[name]}"' for name in ("node", "device") if name in found)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
