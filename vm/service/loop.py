"""The daemon's one thread: it owns the sockets, the engine and the cheap kernels.

Theory of operation. A turn receives from the sockets, admits a quantum of one peer's messages, runs the engine's
phases, sends pending answers, and polls the sockets again: at the latest every 100 us plus one kernel. The loop sleeps
only after a turn without work, in one poll over everything that can wake it: the sockets, their monitors, the
authentication socket, the processes behind ipc connections (pidfds), and an eventfd that streams write to. Before it
sleeps, it polls for a moment if polling has succeeded lately (`busy_polling`).

Guarantees. No completion is lost: a stream appends the completion, and then writes to the eventfd if the loop sleeps or
is about to; and the loop announces its sleep before it checks for completions a last time. Timers run between turns and
are late by at most one turn. No other thread touches the engine. An exception that leaves a turn is logged, and the
loop goes on. The loop ends only if the engine has a fault (`engine.fault`), or if `MAX_FAULTS` turns in a row fail:
the daemon then tells every client, and ends.

Rejected: a thread for the sockets (a ZeroMQ echo over two threads takes 144 us instead of 84, and 10.7 ms beside a busy
scheduler), asyncio (a callback per message on the path of every op).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np
import zmq

from ...streams.stream import Task
from ..engine import Engine
from ..log import log
from .busy_polling import BusyPolling
from .connections.front import Front
from .connections.listener import QUEUE_LENGTH, Listener
from .connections.peer import Peer

MAX_FAULTS = 20
SEND_RETRY = 0.005
MAX_SLEEP = 1.0
FENCE_POLL_NS = 500_000  # for which the loop polls for a fence before it sleeps


class LoopTimer:
    """An action that the loop repeats every `period` seconds."""

    def __init__(self, period: float, action: Callable[[], None], now: float) -> None:
        self.period = period
        self.action = action
        self.due = now + period


class Loop:
    """Drives the engine for all connections of the front end."""

    def __init__(self, engine: Engine, front: Front, listeners: Sequence[Listener], *, busy_poll: float = 0) -> None:
        self.engine = engine
        self.front = front
        self.registry = registry = front.registry
        self.listeners = listeners
        self.polling = BusyPolling(round(busy_poll * 1e9))
        self.asleep = False
        self.ended = False
        self.faults = 0  # failed turns in a row
        self.timers: list[LoopTimer] = []
        self.due = 0.0  # when the earliest timer is due
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Descriptors that are rarely readable: the eventfd, the pidfds, the sockets that belong to no listener. Polling
        # one ZeroMQ socket costs more than all of these together.
        self.others = select.epoll()
        self.others.register(self.wakeup, select.EPOLLIN)
        self.processes: dict[int, Peer] = {}
        readable = int(zmq.POLLIN)
        self.polled: list[tuple[Any, int]] = [(self.others.fileno(), readable)]
        self.watched: dict[int, Callable[[], None]] = {}  # descriptor -> its callback when it is readable
        for listener in listeners:
            self.polled.append((listener.socket, readable))
            self.watch_socket(listener.monitor, listener.watch)
        registry.watch_process, registry.unwatch_process = self.watch_process, self.unwatch_process
        registry.before_hello = self.watch_listeners
        front.has_news = self.has_news

    # -- other threads ---------------------------------------------------------------------------------------------

    def sink(self, tasks: Sequence[Task]) -> None:
        """Take the finished instructions of a stream, on the stream's thread."""
        self.engine.finished.extend(tasks)
        if self.asleep:
            os.eventfd_write(self.wakeup, 1)

    def end(self) -> None:
        """Make `run` return soon. May be called by a signal handler."""
        self.ended = True
        os.eventfd_write(self.wakeup, 1)

    # -- the loop --------------------------------------------------------------------------------------------------

    def every(self, period: float, action: Callable[[], None]) -> None:
        """Repeat an action every `period` seconds, between turns."""
        self.timers.append(LoopTimer(period, action, time.monotonic()))
        self.due = 0.0

    def watch_socket(self, socket: Any, drain: Callable[[], None]) -> None:
        """Call `drain` when another ZeroMQ socket may be readable; only a socket that was found empty signals again."""
        fd = int(socket.get(zmq.FD))
        self.others.register(fd, select.EPOLLIN)
        self.watched[fd] = drain

    def run(self) -> None:
        for drain in self.watched.values():
            drain()  # a socket signals its descriptor only once it was found empty
        with np.errstate(all="ignore"):
            while not self.ended:
                self.turn()

    def turn(self) -> None:
        """Do one turn. Raises an exception that ends the daemon; any other exception is logged."""
        try:
            self._turn()
            self.faults = 0
        except Exception as error:
            self.faults += 1
            if self.engine.fault is not None or self.faults >= MAX_FAULTS:
                raise
            log.exception("a fault of the daemon, which goes on", error=repr(error))
        if self.engine.fault is not None:  # the handling of a message may have taken it for an error of the sender
            raise self.engine.fault

    def _turn(self) -> None:
        """Poll the sockets, blocking if there is no other work, and do all the work that is due."""
        for socket, _ in self.poll():
            self.handle_socket(socket)
        engine, front = self.engine, self.front
        if front.not_reading or time.monotonic() >= self.due:
            self.run_timers()
        if self.registry.gone:
            self.end_lost_connections()
        front.admit_next()
        if front.dirty:  # answers first, since clients wait for them
            front.flush()
        retired = going = engine.schedule()
        while going and not (engine.directory.leaving or engine.running):  # these do one piece per turn
            going = engine.schedule()
        if front.waiting:
            front.resume_waiting()
        if front.credit_due:
            front.report_credit(everybody=retired or not (front.fresh or front.busy))
        if front.dirty or front.freed:
            front.flush()

    def poll(self) -> list[tuple[Any, int]]:
        """The readable sockets. Without other work, sleep until a socket is readable or a timer is due."""
        front = self.front
        engine = self.engine
        if front.fresh or front.busy or front.dirty or engine.directory.leaving or engine.running:
            return zmq.zmq_poll(self.polled, 0)
        polling, began = self.polling, time.monotonic_ns()
        budget = polling.budget()
        if engine.unwatched:
            budget = max(budget, FENCE_POLL_NS)
        while budget and time.monotonic_ns() - began < budget:
            ready = zmq.zmq_poll(self.polled, 0)
            if engine.unwatched:
                engine.poll()
            if ready or self.engine.finished:
                polling.succeeded()
                return ready
        engine.watch()
        self.asleep = True
        try:
            rest = SEND_RETRY if front.not_reading else self.due - time.monotonic()
            return zmq.zmq_poll(self.polled, 0 if self.engine.finished else ceil(max(rest, 0) * 1000))
        finally:
            self.asleep = False
            polling.slept(time.monotonic_ns() - began, polled=budget > 0)

    def has_news(self) -> bool:
        """Whether anything has arrived or finished since the last poll."""
        return bool(self.engine.finished or zmq.zmq_poll(self.polled, 0))

    def handle_socket(self, socket: Any) -> None:
        """Receive from a readable socket, or handle the descriptors that are rarely readable."""
        for listener in self.listeners:
            if socket is listener.socket:
                self.receive(listener)
                return
        self.handle_other_descriptors()

    def receive(self, listener: Listener) -> bool:
        """Receive one message, if there is one. A next poll finds more at a lower cost than a second receive here."""
        try:
            identity, frames = listener.receive()
        except zmq.Again:
            return False
        self.front.receive(listener, identity, frames)
        return True

    def end_lost_connections(self) -> None:
        """End the sessions of ended connections, after receiving all messages that had arrived from them.

        A monitor's event overtakes the messages in the socket, among which may be a BYE.
        """
        registry = self.registry
        while registry.gone:
            ended = list(registry.gone)
            for listener in {peer.listener for peer in ended}:
                self.drain(listener)
            for peer in ended:
                if peer in registry.gone:  # not if it has sent BYE, or has come back
                    registry.connection_ended(peer)

    def drain(self, listener: Listener) -> None:
        """Receive all messages in the socket, but no more than ZeroMQ can queue, since other peers go on sending."""
        for _ in range((QUEUE_LENGTH + 1) * (len(self.registry.peers) + 1)):
            if not self.receive(listener):
                return

    # -- processes -------------------------------------------------------------------------------------------------

    def watch_process(self, peer: Peer) -> None:
        """Watch for the end of an ipc client's process, even if another process has inherited its socket."""
        if not peer.listener.local or not peer.credentials.pid:
            return
        try:
            peer.pidfd = os.pidfd_open(peer.credentials.pid)
        except OSError:  # ended, as the monitor will report, or in an invisible namespace
            return
        self.others.register(peer.pidfd, select.EPOLLIN)
        self.processes[peer.pidfd] = peer

    def unwatch_process(self, peer: Peer) -> None:
        """Stop watching the process of a peer, before its descriptor is closed."""
        if self.processes.pop(peer.pidfd, None) is not None:
            self.others.unregister(peer.pidfd)

    def handle_other_descriptors(self) -> None:
        """Handle the eventfd, watched sockets, and ended processes."""
        for fd, _ in self.others.poll(0):
            if fd == self.wakeup:
                os.eventfd_read(self.wakeup)
                continue
            if fd in self.watched:
                self.watched[fd]()
                continue
            peer = self.processes.get(fd)
            if peer is not None:
                self.unwatch_process(peer)  # readable from now on
                self.registry.died(peer)

    def watch_listeners(self) -> None:
        """Process the events of every listener's monitor now."""
        for listener in self.listeners:
            listener.watch()

    # -- time ------------------------------------------------------------------------------------------------------

    def run_timers(self) -> None:
        if self.front.not_reading:
            self.front.retry_sending()
        now = time.monotonic()
        if now < self.due:
            return
        for timer in self.timers:
            if now >= timer.due:
                timer.due = now + timer.period
                timer.action()
        self.due = min([timer.due for timer in self.timers], default=now + MAX_SLEEP)

    def close(self) -> None:
        """Close the descriptors that belong to no socket, after the streams' threads have ended, or hang."""
        self.asleep = False
        self.others.close()
        os.close(self.wakeup)
