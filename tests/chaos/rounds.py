"""A chaotic round: several client processes on one daemon, hurt at random points, and the invariants checked
afterwards.

The seed decides which faults happen, and at which step of which client; it does not decide how far the daemon is by
then.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tensord.client.session.session import Session

from ..daemon import Daemon
from ..forked import Forked
from ..ports import free_port
from ..puppet import eventually
from .client import TOTAL, Act

PATIENCE = 60.0  # seconds for a round that hangs
CLIENTS = 4
STEPS = 120
GROWTH = 256 << 20  # bytes that a daemon may have more than before, including the pool's caches
CONFIGURATION = """
lease = 2
heartbeat = 1
grace = 2
devices = ["cpu:0", {name = "sim:0", memory = "2 MiB"}, {name = "sim:1", memory = "2 MiB", launches = true}]
"""


class Client:
    """A client process, its progress, and its reports."""

    def __init__(self, address: str, seed: int, plan: dict[int, str]) -> None:
        self.plan = plan
        self.said, output = os.pipe()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
        arguments = ["client", address, str(seed), str(STEPS), json.dumps(plan)]
        self.process = Forked(
            ("tests.chaos.client", "main"), arguments, env=os.environ, stdout=output, stderr=self.errors.fileno()
        )
        os.close(output)
        self.step = -1
        self.low = self.high = 0
        self.end = ""
        self.why = ""
        self.wrong: list[str] = []
        self.killed = self.stopped = False
        self.unread = b""

    def read(self) -> bool:
        """Take its next report; False at its end."""
        said = os.read(self.said, 1 << 16)
        *lines, self.unread = (self.unread + said).split(b"\n")
        for line in lines:
            self.hear(json.loads(line))
        return bool(said)

    def hear(self, said: dict[str, Any]) -> None:
        self.step, self.low, self.high = (said.get(name, getattr(self, name)) for name in ("step", "low", "high"))
        self.end, self.why = said.get("end", self.end), said.get("why", self.why)
        if "wrong" in said:
            self.wrong.append(said["wrong"])

    def send(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.killed |= number == signal.SIGKILL
            self.stopped = (self.stopped or number == signal.SIGSTOP) and number != signal.SIGCONT

    def close(self) -> str:
        """It has ended, or has to; its stderr."""
        if self.process.poll() is None and not self.end:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        self.process.kill()
        self.process.wait()
        os.close(self.said)
        with self.errors as errors:
            errors.seek(0)
            return str(errors.read(), errors="replace")


class Round:
    """One round: `run` runs it and returns what was wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.tcp = rng.random() < 0.3
        self.victim = ("clients", "clients", "killed", "stopped")[seed % 4]
        self.plans: list[dict[int, str]] = [{} for _ in range(CLIENTS)]
        self.signals: list[tuple[int, int, int]] = []  # client, its step, signal
        for number in range(CLIENTS):
            self.plan(number)
        self.daemon_step = rng.randrange(20, CLIENTS * STEPS // 2)  # of all clients together
        self.problems: list[str] = []
        self.told = False

    def plan(self, number: int) -> None:
        """The faults of one client."""
        rng = self.rng
        for _ in range(rng.randrange(3)):
            step = rng.randrange(STEPS)
            if rng.random() < 0.4:
                self.plans[number][step] = rng.choice(list(Act)).value
            else:
                what = rng.choice((signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP, signal.SIGUSR1, signal.SIGUSR1))
                self.signals.append((number, step, what))

    def __str__(self) -> str:
        where = "tcp" if self.tcp else "ipc"
        return f"seed {self.seed} ({where}, {self.victim}, plans {self.plans}, signals {self.signals})"

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """Run the round; the faults found."""
        directory = Path(tempfile.mkdtemp(prefix="td-chaos-"))
        try:
            (directory / "tensord.toml").write_text(CONFIGURATION)
            self.options = ("--config", str(directory / "tensord.toml"))
            address = f"tcp://127.0.0.1:{free_port()}" if self.tcp else None
            with Daemon.start(directory, *self.options, address=address) as daemon:
                self.on(daemon)
                if daemon.process.poll() is None and daemon.stop() != 0:
                    self.problems.append("the daemon's exit status was not 0")
                if "Traceback" in daemon.log:
                    self.problems.append(daemon.log[daemon.log.index("Traceback") - 200 :][:4000])
                if self.victim == "killed":
                    self.start_again(daemon, directory)
        finally:
            shutil.rmtree(directory)
        return [f"{self}: {problem}" for problem in self.problems]

    def on(self, daemon: Daemon) -> None:
        """The steps that need the daemon."""
        with daemon.connect() as observer:
            observer.publish("counter", observer.asarray(np.zeros(50)))
            observer.publish({"left": observer.asarray(np.zeros(20)), "right": observer.asarray(np.full(20, TOTAL))})
            observer.sync()
            before = daemon.memory()
            clients = [Client(daemon.address, self.seed * 100 + n, plan) for n, plan in enumerate(self.plans)]
            try:
                self.watch(daemon, clients)
            finally:
                errors = [client.close() for client in clients]
            for number, (client, error) in enumerate(zip(clients, errors, strict=True)):
                self.check_client(number, client, error)
            if self.victim == "clients":
                self.check_daemon(daemon, observer, clients, before)

    def watch(self, daemon: Daemon, clients: list[Client]) -> None:
        """Read the clients' reports, and hurt each client when it gets to its step."""
        deadline = time.monotonic() + PATIENCE
        due = sorted(self.signals, key=lambda entry: entry[1])
        with selectors.DefaultSelector() as selector:
            for client in clients:
                selector.register(client.said, selectors.EVENT_READ, client)
            while selector.get_map():
                if time.monotonic() > deadline:
                    self.problems.append(f"clients hang at steps {[client.step for client in clients]}")
                    return
                ready = selector.select(0.1)
                for key, _ in ready:
                    if not key.data.read():
                        selector.unregister(key.fileobj)
                for entry in [entry for entry in due if clients[entry[0]].step >= entry[1]]:
                    due.remove(entry)
                    clients[entry[0]].send(entry[2])
                if not ready:  # all other clients have ended, or wait for the one that stands still
                    for client in clients:
                        if client.stopped:
                            client.send(signal.SIGCONT)
                self.hurt(daemon, clients)

    def hurt(self, daemon: Daemon, clients: list[Client]) -> None:
        """The fault of the daemon."""
        if self.told or self.victim == "clients" or sum(client.step + 1 for client in clients) < self.daemon_step:
            return
        self.told = True
        if self.victim == "killed":
            daemon.kill()
        else:
            daemon.signal(signal.SIGTERM)

    # -- afterwards ------------------------------------------------------------------------------------------------

    def check_client(self, number: int, client: Client, errors: str) -> None:
        """It has ended as its faults demand."""
        who = f"client {number} at step {client.step}"
        self.problems += [f"{who}: {wrong}\n{errors[-2000:]}" for wrong in client.wrong]
        if client.killed or Act.VANISH in client.plan.values():
            return
        cut_off = self.has_stopped(number) if self.tcp else Act.CUT in client.plan.values()
        may_be_lost = self.told or cut_off
        if client.end != "done" and not (client.end == "lost" and may_be_lost) and not client.wrong:
            self.problems.append(f"{who} ended with {client.end!r} {client.why}\n{errors[-2000:]}")
        if "Traceback" in errors and not client.wrong:
            self.problems.append(f"{who} wrote to stderr:\n{errors[-2000:]}")
        if client.process.returncode != 0 and not client.wrong:
            self.problems.append(f"{who} has exit status {client.process.returncode}")

    def has_stopped(self, number: int) -> bool:
        """Did it stand still? Over tcp that may be longer than its lease."""
        return any(entry[0] == number and entry[2] == signal.SIGSTOP for entry in self.signals)

    def check_daemon(self, daemon: Daemon, observer: Session, clients: list[Client], before: int) -> None:
        """The daemon has only the published tensors, and reports so consistently."""
        self.see("sessions are left", lambda: len(observer._core.answers.query("sessions")) == 1, observer, "sessions")
        self.see("instructions are left", lambda: observer.stats()["live"] == 0, observer, "status")
        names = observer.names()
        counter = observer.lookup("counter").numpy()
        low, high = sum(client.low for client in clients), sum(client.high for client in clients)
        if not (counter == counter[0]).all() or not low <= counter[0] <= high:
            self.problems.append(f"the counter is {counter}, not between {low} and {high}")
        total = (observer.lookup("left") + observer.lookup("right")).numpy()
        if not (total == TOTAL).all():
            self.problems.append(f"left and right add up to {total}")
        if problems := observer.trace().verify():
            self.problems.append(f"the trace does not verify: {[str(problem) for problem in problems[:3]]}")
        observer.unpublish(*names)
        self.see("tensors are left", lambda: used(observer) == 0, observer, "tensors")
        if daemon.memory() > before + GROWTH:
            self.problems.append(f"the daemon has grown from {before} to {daemon.memory()} bytes")

    def see(self, problem: str, predicate: Callable[[], bool], observer: Session, what: str) -> None:
        """Wait until a condition holds; else report the daemon's state."""
        try:
            eventually(predicate, 10.0)
        except AssertionError:
            self.problems.append(f"{problem}: {observer._core.answers.query(what)}")

    def start_again(self, daemon: Daemon, directory: Path) -> None:
        """A killed daemon does not hinder the next one."""
        with Daemon.start(directory, *self.options, address=daemon.address) as anew, anew.connect() as session:
            if session.asarray([1, 2]).numpy().tolist() != [1, 2] or session.names():
                self.problems.append("the new daemon is not as new")


def used(session: Session) -> int:
    """Bytes of tensors on all devices."""
    return sum(device["allocated"] for device in session.stats()["devices"].values())
