"""The daemon: its parts, the order of startup, and the stages of shutdown.

Shutdown has three stages. After SIGTERM or another signal that ends it (`signals`), the daemon accepts no more
connections and messages, and admitted instructions go on. When all are finished, or the grace period is over, or a
second signal arrives, every client gets GOODBYE, and the remaining instructions are cancelled. Then sockets, threads,
and locks are closed, in this order. Memory files have no names: each is freed with its last mapping.

A fault of the daemon itself (an exception that leaves the engine, see `engine`) skips the first two stages: every
client gets GOODBYE with the reason, the log gets the traceback, and the exit status is 1, so that a service manager
restarts the daemon.
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import zmq

from ...interpreter.concurrency.switch_interval import SWITCH_INTERVAL
from ...interpreter.version import version
from ...interpreter.wire.descriptors import descriptor_limit, raise_descriptor_limit
from ...interpreter.wire.frames import GOODBYE
from ...interpreter.wire.segments import descriptor_budget
from ...streams.cuda import kernel_cache
from ...streams.stream import Task
from ..log import log
from ..plugins.loading import load
from ..reporting.answering import ClientInfo
from ..runtime import Runtime
from .access import zap
from .access.guard import CHECK_INTERVAL, MemoryGuard
from .access.listen_address import ListenGuards, listen_guards
from .connections.front import Front
from .connections.inbound import unadmitted
from .connections.listener import Listener, PeerCredentials
from .connections.outbound import encode, try_send
from .connections.registry import SOCKET_GRACE, ConnectionRegistry
from .connections.unauthenticated import CHECK_INTERVAL as UNAUTHENTICATED_PERIOD
from .connections.unauthenticated import UnauthenticatedPeers
from .descriptors import require_least, share_out
from .exporter import CHECK_INTERVAL as EXPORTER_PERIOD
from .exporter import Exporter, check_exporter, command_of
from .loop import Loop
from .peers import introduce, open_peers
from .preflight import cannot_listen, open_runtime, prepare_kernel_cache, start_warnings, warming_of
from .process.instance import Instance, private
from .process.logs import logging_to
from .process.notify import Notifier
from .process.signals import Signals, signals
from .restored import hold_durable, restore
from .settings.config import Config

REFUSAL_GRACE = 0.1  # seconds for a refusal to be sent before its connection is cut
CANCELLATION_GRACE = 2.0  # seconds for running kernels to end after the cancellation
LEASE_INTERVAL = 0.5
# The garbage collector runs rarely, since neither the hot path nor the decoding of batches makes cycles. A collection
# of young objects visits at most some 200,000, which takes 20 ms: a program has that many, and delays other clients.
GC_THRESHOLDS = (50_000, 2, 350)


def run(config: Config) -> int:
    """Serve until a signal ends the daemon, and return the exit status. StartError if the daemon cannot start."""
    raise_descriptor_limit()
    require_least()
    with ExitStack() as stack:
        received = stack.enter_context(signals())
        stack.enter_context(logging_to(config.log.file, level=config.log.level, form=config.log.format))
        keepers = listen_guards(config.listen, config.security.server_secret, config.security.allow)
        for address in config.listen:
            stack.enter_context(Instance(address))
        notifier = Notifier()
        stack.callback(notifier.close)
        service = Service(config, keepers, notifier, received)
        stack.callback(service.close)
        stack.enter_context(descriptor_budget(service.shares.segments))
        service.run()
    return 0 if service.ended_well else 1  # known once everything is closed


class Service:
    """The parts of one daemon."""

    def __init__(self, config: Config, keepers: ListenGuards, notifier: Notifier, received: Signals) -> None:
        self.config = config
        self.signals = received
        self.notifier = notifier
        self.gatekeeper = keepers.gatekeeper
        self.ended_well = True
        check_exporter(config)
        for plugin in load(config.plugins):
            log.info("plugin", **plugin.row)
        self.kernels = prepare_kernel_cache(config, kernel_cache.store_kernels_in)
        self.peers = open_peers(config)
        self.open(keepers)
        self.registry = registry = registry_of(config, self.runtime, self.shares.sessions)
        self.cuts: deque[tuple[float, Listener, int, int]] = deque()
        self.front = Front(self.runtime.engine, registry, self.end_connection)
        self.loop = Loop(self.runtime.engine, self.front, self.listeners, busy_poll=config.busy_poll)
        self.loop.watch_socket(self.zap, self.authenticate)
        self.guard = MemoryGuard(config.memory)
        self.front.message_completed = self.guard.message_completed
        for listener in self.listeners:
            listener.accepted.append(self.guard.accepted)
            listener.disconnected += [self.guard.closed, partial(registry.disconnected, listener)]
        self.exporter = Exporter(command_of(config), time.monotonic) if config.metrics else None
        most = min(config.limits.sessions, self.shares.unauthenticated)
        self.unauthenticated = UnauthenticatedPeers(registry, self.listeners, most)
        self.describe()
        self.set_timers()

    def open(self, keepers: ListenGuards) -> None:
        """Open devices and sockets, and restore the names; if that fails, close everything that was opened."""
        config = self.config
        try:
            self.runtime = open_runtime(config, self.sink, None if self.peers is None else self.peers.links)
        except BaseException:
            self.close_peers()
            raise
        self.context: zmq.Context[Any] = zmq.Context()
        self.zap = self.context.socket(zmq.REP)
        self.zap.linger = 0
        self.zap.bind(zap.ENDPOINT)
        self.listeners: list[Listener] = []
        try:
            self.warming = warming_of(config, self.runtime)
            hold_durable(self.runtime.engine)
            restore(self.runtime.engine, config)
            self.open_listeners(keepers)
            self.shares = share_out(len(self.listeners))
        except BaseException:
            self.close_sockets()
            self.runtime.close(1.0)
            self.close_peers()
            raise

    def sink(self, tasks: Sequence[Task]) -> None:
        """Pass completions on to the loop, which is made after the streams."""
        self.loop.sink(tasks)

    def open_listeners(self, keepers: ListenGuards) -> None:
        """Listen on every address; only the daemon's user can access a socket in the file system."""
        for listen_address in keepers.addresses:
            try:
                with private():
                    listener = Listener(
                        self.context, listen_address, self.config.limits, heartbeat=self.config.heartbeat
                    )
                listener.refusal_of = self.gatekeeper.refusal_of
                self.listeners.append(listener)
            except zmq.ZMQError as error:
                raise cannot_listen(listen_address.address, error.errno) from None

    def set_timers(self) -> None:
        self.loop.every(LEASE_INTERVAL, self.registry.end_leases)
        self.loop.every(REFUSAL_GRACE, self.cut_connections)
        self.loop.every(SOCKET_GRACE, self.registry.end_inherited)
        self.loop.every(UNAUTHENTICATED_PERIOD, self.unauthenticated.check)
        self.loop.every(UNAUTHENTICATED_PERIOD, self.gatekeeper.tell_overdue)
        self.loop.every(self.runtime.watch_period, self.watch)
        self.loop.every(CHECK_INTERVAL, self.check_memory)
        if self.exporter is not None:
            self.loop.every(EXPORTER_PERIOD, self.exporter.check)
        if self.notifier.watchdog_period is not None:
            self.loop.every(self.notifier.watchdog_period, self.notifier.watchdog)

    def describe(self) -> None:
        """Set the facts about the daemon that `tensord status` shows."""
        about = self.runtime.about
        about.address = " ".join(listener.bound for listener in self.listeners)
        about.client = self.client
        about.looks = self.is_internal
        about.grace = self.config.grace
        about.drain = self.drain
        about.kernels = self.kernels
        if about.members is not None:
            introduce(about.members, self.config, [listener.bound for listener in self.listeners])
            if self.peers is not None:
                self.peers.follow(about.members)

    def drain(self) -> None:
        """Accept no new sessions; open sessions go on, and may be resumed after a broken connection."""
        log.info("draining: no new sessions are taken")
        self.registry.draining = True
        self.notifier.status("draining")

    def client(self, session: int) -> ClientInfo | None:
        """The client behind a session."""
        peer = self.registry.sessions.get(session)
        if peer is None:
            return None
        return ClientInfo(
            peer.name,
            peer.credentials.pid,
            peer.credentials.uid,
            "ipc" if peer.listener.local else "tcp",
            self.registry.clock() - peer.since,
            peer.state.value,
            unadmitted(peer),
            peer.consumed(),
        )

    def is_internal(self, session: int) -> bool:
        """Whether the session belongs to the command line, or to the warming of kernels."""
        peer = self.registry.sessions.get(session)
        ours = self.warming.session
        return (peer is not None and peer.is_command_line) or (ours is not None and ours.id == session)

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until asked to stop, then finish within the grace period."""
        SWITCH_INTERVAL.shorten()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        addresses = ", ".join(listener.bound for listener in self.listeners)
        if self.shares.short:
            limit = descriptor_limit()
            log.warning("few open files: a burst of connections could end us", limit=limit, more=self.shares.short)
        for doubt in start_warnings(self.config):
            log.warning(doubt)
        log.info("serving", address=addresses, pid=os.getpid(), devices=list(self.runtime.devices))
        self.notifier.ready(f"serving on {addresses}")
        self.warming.start()
        self.signals.serve(self.loop.end)
        try:
            self.loop.run()
            self.finish()
        except Exception as error:
            self.end_broken(error)

    def authenticate(self) -> None:
        """Answer ZAP's requests about new connections."""
        for listener in self.listeners:
            listener.watch()  # learns the addresses of the peers while they wait for the answer
        while int(self.zap.get(zmq.EVENTS)) & zmq.POLLIN:
            self.zap.send_multipart(self.gatekeeper.answer(self.zap.recv_multipart(zmq.NOBLOCK)))

    def watch(self) -> None:
        """Do the periodic checks."""
        self.signals.log_ignored()
        self.runtime.watch()
        self.warming.close_when_done()

    # -- cutting connections ---------------------------------------------------------------------------------------

    def end_connection(self, listener: Listener, connection: PeerCredentials) -> None:
        """Cut a connection once its last messages have left."""
        self.cuts.append((time.monotonic() + REFUSAL_GRACE, listener, connection.fd, connection.number))

    def cut_connections(self) -> None:
        """Cut the connections whose last messages had `REFUSAL_GRACE` to leave."""
        now = time.monotonic()
        while self.cuts and self.cuts[0][0] <= now:
            _, listener, fd, number = self.cuts.popleft()
            listener.cut(fd, number)

    def check_memory(self) -> None:
        """Cut the connections that make libzmq buffer without end."""
        for fd in self.guard.check():
            peer = next((listener.origins[fd] for listener in self.listeners if fd in listener.origins), "")
            why = "memory is short, and the peer completes no message"
            self.unauthenticated.refusals.tell("a connection was cut", reason=why, peer=peer)

    # -- the end ---------------------------------------------------------------------------------------------------

    def end_broken(self, error: Exception) -> None:
        """Log a fault of the daemon itself, and tell every client. The engine is not called again."""
        self.ended_well = False
        log.critical("the daemon ends after a fault of its own", error=repr(error), exc_info=error)
        self.notifier.stopping("ended by a fault")
        farewell = encode([GOODBYE, f"it has a fault, see its log: {type(error).__name__}: {error}"])
        for peer in list(self.registry.sessions.values()):
            with suppress(Exception):
                try_send(peer, [farewell])

    def finish(self) -> None:
        """Let admitted instructions finish, send GOODBYE, then cancel the rest: waits raise the end, not the cancel."""
        why = self.signals.end_requests[0]
        clients = sum(not peer.is_command_line for peer in self.registry.sessions.values())
        log.info("stopping", why=why, grace=self.config.grace, sessions=clients)
        self.notifier.stopping(f"asked by {why}")
        self.warming.stop()
        self.registry.closing = True  # refuses HELLO; the sockets stay bound, since unbinding would end every session
        self.turn_until(lambda: self.is_idle() or len(self.signals.end_requests) > 1, self.config.grace)
        self.front.flush()
        for peer in list(self.registry.sessions.values()):
            try_send(peer, [encode([GOODBYE, f"it was stopped by {why}"])])
            self.registry.end(peer, "the daemon ends")
        self.turn_until(self.is_idle, CANCELLATION_GRACE)

    def is_idle(self) -> bool:
        """Whether all admitted instructions are finished, and all answers sent."""
        engine, front = self.runtime.engine, self.front
        working = engine.live or engine.pending or engine.scheduler.dispatcher.batches
        return not (working or front.fresh or front.busy or front.dirty)

    def turn_until(self, done: Any, seconds: float) -> None:
        """Run turns until `done`, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        self.loop.every(0.02, lambda: None)  # so that no turn sleeps for long
        while not done() and time.monotonic() < deadline:
            self.loop.turn()

    def close(self) -> None:
        """Close sockets, runtime and, last, the loop, which the streams' threads may still wake."""
        if self.exporter is not None:
            self.exporter.close()
        self.close_sockets()
        self.ended_well = self.runtime.close(CANCELLATION_GRACE) and self.ended_well
        self.ended_well = self.close_peers() and self.ended_well
        self.signals.ignore_all()
        self.loop.close()
        log.info("stopped", well=self.ended_well)

    def close_peers(self) -> bool:
        """End the links to other nodes; False if one did not end in time."""
        return self.peers is None or self.peers.close(CANCELLATION_GRACE)

    def close_sockets(self) -> None:
        """Close every socket, after the linger time of its messages."""
        for listener in self.listeners:
            listener.close()
        self.zap.close()
        self.context.term()


def registry_of(config: Config, runtime: Runtime, descriptors: int) -> ConnectionRegistry:
    """The connection registry of a daemon, whose sessions share that many descriptors."""
    about = {
        "version": version(),
        "pid": os.getpid(),
        "node": config.node,
        "incarnation": config.cluster.incarnation,
    }
    registry = ConnectionRegistry(runtime.engine, config.limits, time.monotonic, lease=config.lease, about=about)
    registry.departed = runtime.departed
    registry.files = config.files
    registry.checkpoints = tuple([path.resolve() for path in config.checkpoints])
    registry.gpu_memory = config.gpu_memory
    registry.descriptors = descriptors
    return registry
