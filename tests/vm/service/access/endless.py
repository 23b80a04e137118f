"""Run by test_guard.py: a daemon's socket under a memory guard, and peers that never end their messages.

`python endless.py DIRECTORY LIMIT PART PEERS CUTS END` serves echoes on DIRECTORY/socket to an honest client, and
starts PEERS processes that send parts of PART bytes (endless_peer.py). Once CUTS connections were cut it ends the
peers, goes on until the client was answered again and the process has fewer than END bytes more than at the beginning,
and prints the events as JSON.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from tensord.vm.process import resident_memory
from tensord.vm.service.access.guard import CHECK_INTERVAL, MemoryGuard

PEER = Path(__file__).with_name("endless_peer.py")
PATIENCE = 40.0  # seconds until a wait fails; never slept


class Receiver:
    """A ROUTER that echoes, its guard, and a record of its events."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, limit: int) -> None:
        self.guard = MemoryGuard(limit)
        self.router = context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.rcvhwm = 64
        self.monitor = self.router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.router.bind(address)
        self.peak = 0

    def run(self, happened: Callable[[], bool]) -> bool:
        """Serve until `happened` is true; returns False after the patience has run out."""
        poller = zmq.Poller()
        poller.register(self.router, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        next_check, deadline = 0.0, time.monotonic() + PATIENCE
        while not happened():
            for ready, _ in poller.poll(10):
                self.turn(ready)
            self.peak = max(self.peak, resident_memory())
            if (now := time.monotonic()) > deadline:
                return False
            if now >= next_check:
                next_check = now + CHECK_INTERVAL
                self.guard.check()
        return True

    def turn(self, ready: zmq.Socket[bytes]) -> None:
        if ready is self.monitor:
            event = recv_monitor_message(self.monitor)
            tell = self.guard.accepted if event["event"] == zmq.EVENT_ACCEPTED else self.guard.closed
            tell(event["value"])
            return
        frames = self.router.recv_multipart(copy=False)
        self.guard.message_completed(frames[0].get(zmq.SRCFD))
        self.router.send_multipart([frame.bytes for frame in frames])

    def close(self) -> None:
        self.router.disable_monitor()
        self.monitor.close(0)
        self.router.close()


def ask(context: zmq.Context[zmq.Socket[bytes]], address: str, stop: threading.Event, answered: list[int]) -> None:
    """An honest client: one question after the other."""
    with context.socket(zmq.DEALER) as client:
        client.linger, client.rcvtimeo = 0, 5000
        client.connect(address)
        while not stop.is_set():
            client.send(b"?" * 1000)
            with contextlib.suppress(zmq.Again):
                client.recv()
                answered[0] += 1


def receive(directory: str, limit: int, part: int, peers: int, cuts: int, end: int) -> None:
    address, stop, answered = f"ipc://{directory}/socket", threading.Event(), [0]
    with zmq.Context() as context:
        receiver = Receiver(context, address, limit)
        baseline = resident_memory()
        honest = threading.Thread(target=ask, args=(context, address, stop, answered))
        honest.start()
        command = [sys.executable, "-I", "-S", str(PEER), f"{directory}/socket", str(part)]
        others = [subprocess.Popen(command) for _ in range(peers)]  # noqa: S603
        receiver.run(lambda: receiver.guard.cuts >= cuts)
        for other in others:
            other.kill()
            other.wait()
        served = answered[0]
        went_on = receiver.run(lambda: answered[0] > served)
        receiver.run(lambda: resident_memory() < baseline + end)
        found = {"baseline": baseline, "peak": receiver.peak, "end": resident_memory(), "cuts": receiver.guard.cuts}
        stop.set()
        while honest.is_alive():
            receiver.turn(receiver.router) if receiver.router.poll(10) else None
        receiver.close()
    print(json.dumps(found | {"answered": answered[0], "went_on": went_on}))  # noqa: T201


if __name__ == "__main__":
    receive(sys.argv[1], *map(int, sys.argv[2:]))
