"""The daemon's one thread: it owns the sockets, the engine and the cheap kernels.

Theory of operation. A turn takes what the sockets have, admits a quantum of one peer's messages, runs the engine's
phases, sends what is to be told, and looks at the sockets again: at the latest every 100 us plus one kernel. Only when
a turn found nothing to do does it sleep, in one poll over everything that can wake it: the sockets, their monitors, the
authentication socket, the processes behind ipc connections (pidfds), and an eventfd that streams ring.

Guarantees. A completion is never lost: a stream appends it and then rings if the loop sleeps or is about to; the loop
says that it is about to sleep before it looks for completions a last time. Timers run between turns and are late by a
turn at most. No other thread touches the engine.

Rejected: a thread for the sockets (a ZeroMQ echo over two threads takes 144 us instead of 84, and 10.7 ms beside a busy
scheduler), asyncio (a callback per message on the path of every op).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil
from typing import Any

import numpy as np
import zmq

from ...streams.stream import Task
from ..engine import Engine
from .front import Front
from .listener import Door
from .peer import Peer

STUCK_RETRY = 0.005
SLEEP = 1.0


class Timer:
    """Something to do now and then."""

    __slots__ = ("due", "period", "what")

    def __init__(self, period: float, what: Callable[[], None], now: float) -> None:
        self.period = period
        self.what = what
        self.due = now + period


class Loop:
    """Drives the engine for all connections of the front end."""

    def __init__(self, engine: Engine, front: Front, doors: Sequence[Door]) -> None:
        self.engine = engine
        self.front = front
        self.lobby = lobby = front.lobby
        self.doors = doors
        self.asleep = False
        self.ended = False
        self.timers: list[Timer] = []
        self.due = 0.0  # the earliest of them
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # What is readable rarely: the bell, the pidfds, the descriptors of sockets that are not a door's. Asking ZeroMQ
        # about a socket costs more than all of these together.
        self.others = select.epoll()
        self.others.register(self.bell, select.EPOLLIN)
        self.processes: dict[int, Peer] = {}
        self.poller = zmq.Poller()
        self.poller.register(self.others.fileno(), zmq.POLLIN)
        self.watched: dict[int, Callable[[], None]] = {}  # descriptor -> what to do when it is readable
        for door in doors:
            self.poller.register(door.socket, zmq.POLLIN)
            self.watch_socket(door.monitor, door.watch)
        lobby.watch_process = self.watch_process
        lobby.before_hello = self.watch_doors

    # -- other threads ---------------------------------------------------------------------------------------------

    def sink(self, tasks: Sequence[Task]) -> None:
        """A stream reports finished instructions, on its thread."""
        self.engine.finished.extend(tasks)
        if self.asleep:
            os.eventfd_write(self.bell, 1)

    def end(self) -> None:
        """Leave `run` soon. May be called from a signal handler."""
        self.ended = True
        os.eventfd_write(self.bell, 1)

    # -- the loop --------------------------------------------------------------------------------------------------

    def every(self, period: float, what: Callable[[], None]) -> None:
        """Do something every `period` seconds."""
        self.timers.append(Timer(period, what, time.monotonic()))
        self.due = 0.0

    def watch_socket(self, socket: Any, what: Callable[[], None]) -> None:
        """Call back when another ZeroMQ socket may be readable: `what` takes all there is, or is not called again."""
        fd = int(socket.get(zmq.FD))
        self.others.register(fd, select.EPOLLIN)
        self.watched[fd] = what

    def run(self) -> None:
        """Turn until `end` is called."""
        with np.errstate(all="ignore"):
            while not self.ended:
                self.turn()

    def turn(self) -> None:
        """Look at the sockets, waiting for them if there is nothing else to do, and do what there is."""
        for socket, _ in self.poll():
            self.look(socket)
        engine, front = self.engine, self.front
        self.run_timers()
        front.feed(time.perf_counter_ns)
        while engine.schedule():
            pass
        if engine.scheduler.dispatcher.batches:
            engine.scheduler.dispatcher.flush()
        if front.owing:
            front.grant()
        if front.dirty or front.freed:
            front.flush()

    def poll(self) -> list[tuple[Any, int]]:
        """What is readable; sleep until something is, or until a timer, if there is nothing else to do."""
        front = self.front
        if front.fresh or front.busy or front.dirty:
            return self.poller.poll(0)
        self.asleep = True
        try:
            rest = STUCK_RETRY if front.stuck else self.due - time.monotonic()
            return self.poller.poll(0 if self.engine.finished else ceil(max(rest, 0) * 1000))
        finally:
            self.asleep = False

    def look(self, socket: Any) -> None:
        """Something is readable there."""
        for door in self.doors:
            if socket is door.socket:
                self.receive(door)
                return
        self.look_at_others()

    def receive(self, door: Door) -> None:
        """Take one message; the next poll, which comes soon, tells of others more cheaply than asking does."""
        with suppress(zmq.Again):
            self.front.receive(door, door.receive())

    # -- processes -------------------------------------------------------------------------------------------------

    def watch_process(self, peer: Peer) -> None:
        """Notice the death of the process behind an ipc connection, whoever else has inherited its socket."""
        if not peer.door.local or not peer.credentials.pid:
            return
        try:
            peer.pidfd = os.pidfd_open(peer.credentials.pid)
        except OSError:  # it is gone already, which the monitor will say; or in a namespace that we do not see
            return
        self.others.register(peer.pidfd, select.EPOLLIN)
        self.processes[peer.pidfd] = peer

    def look_at_others(self) -> None:
        """The bell was rung, or a process has died."""
        for fd, _ in self.others.poll(0):
            if fd == self.bell:
                os.eventfd_read(self.bell)
                continue
            if fd in self.watched:
                self.watched[fd]()
                continue
            peer = self.processes.pop(fd, None)
            if peer is not None and peer.pidfd == fd:
                self.lobby.end(peer, "its process has died")

    def watch_doors(self) -> None:
        """Take what the monitors have to say, now."""
        for door in self.doors:
            door.watch()

    # -- time ------------------------------------------------------------------------------------------------------

    def run_timers(self) -> None:
        """Do what is due."""
        if self.front.stuck:
            self.front.unstick()
        now = time.monotonic()
        if now < self.due:
            return
        for timer in self.timers:
            if now >= timer.due:
                timer.due = now + timer.period
                timer.what()
        self.due = min((timer.due for timer in self.timers), default=now + SLEEP)

    def close(self) -> None:
        """Give back what is no socket."""
        self.others.close()
        os.close(self.bell)
