"""Run by test_guard.py: a daemon's socket under a memory guard, and a peer that never ends its message.

`python endless.py receive DIRECTORY LIMIT PART PEERS CUTS` serves echoes on DIRECTORY/socket to an honest client,
starts PEERS processes that send parts of PART bytes, goes on until CUTS connections were cut and a while longer, and
prints what happened as JSON.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from tensord.vm.process import resident_memory
from tensord.vm.service.access.guard import PERIOD, MemoryGuard

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def send(path: str, part: int) -> None:
    """Parts of one message, for ever; over a new connection after each that was cut. By hand (ZMTP 3.0, RFC 23),
    since libzmq sends nothing of a message before its last part."""
    frame = b"\x03" + part.to_bytes(8) + bytes(part)
    while True:
        with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionError):
            peer.connect(path)
            peer.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
            while True:
                peer.sendall(frame)


class Receiver:
    """One ROUTER that echoes, its guard, and what was seen."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, limit: int) -> None:
        self.guard = MemoryGuard(limit)
        self.router = context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.rcvhwm = 64
        self.monitor = self.router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.router.bind(address)
        self.peak = 0
        self.after: list[int] = []

    def run(self, cuts: int, deadline: float) -> None:
        poller = zmq.Poller()
        poller.register(self.router, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        next_check = time.monotonic()
        settle = 8
        while time.monotonic() < deadline and settle:
            for ready, _ in poller.poll(10):
                self.turn(ready)
            self.peak = max(self.peak, resident_memory())
            if time.monotonic() >= next_check:
                next_check += PERIOD
                self.guard.check()
                if self.guard.cuts >= cuts:
                    settle -= 1
                    self.after.append(resident_memory())

    def turn(self, ready: zmq.Socket[bytes]) -> None:
        if ready is self.monitor:
            event = recv_monitor_message(self.monitor)
            tell = self.guard.accepted if event["event"] == zmq.EVENT_ACCEPTED else self.guard.closed
            tell(event["value"])
            return
        frames = self.router.recv_multipart(copy=False)
        self.guard.heard(frames[0].get(zmq.SRCFD))
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


def receive(directory: str, limit: int, part: int, peers: int, cuts: int) -> None:
    address, stop, answered = f"ipc://{directory}/socket", threading.Event(), [0]
    with zmq.Context() as context:
        receiver = Receiver(context, address, limit)
        baseline = resident_memory()
        honest = threading.Thread(target=ask, args=(context, address, stop, answered))
        honest.start()
        command = [sys.executable, __file__, "send", f"{directory}/socket", str(part)]
        others = [subprocess.Popen(command) for _ in range(peers)]  # noqa: S603
        receiver.run(cuts, time.monotonic() + 40)
        served = answered[0]
        for other in others:
            other.kill()
            other.wait()
        receiver.run(receiver.guard.cuts, time.monotonic() + 2)
        went_on = answered[0] > served
        stop.set()
        while honest.is_alive():
            receiver.turn(receiver.router) if receiver.router.poll(10) else None
        receiver.close()
    found = {
        "baseline": baseline,
        "peak": receiver.peak,
        "end": receiver.after[-1] if receiver.after else 0,
        "cuts": receiver.guard.cuts,
        "answered": answered[0],
        "went_on": went_on,
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]))
    else:
        receive(str(Path(sys.argv[2])), *map(int, sys.argv[3:]))
