"""The daemon's receiving path in this process, without sockets or threads: frames go in, frames come out.

Front, registry and admission are the daemon's own. The listener is a fake that keeps the messages that are sent, and
the engine's streams execute on demand. `Harness.check` asserts that an attacker's messages have done no harm.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import zmq

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.programs.convention import weight_of
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import RecordsReader
from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.frames import BATCH, HELLO, REFUSED, REPLIES, VERSION, WELCOME, host_identity
from tensord.interpreter.wire.limits import Limits
from tensord.streams.links.in_memory import pair
from tensord.vm.model.linked import SessionProgram
from tensord.vm.model.plan import Plan
from tensord.vm.model.session import VmSession
from tensord.vm.process import MachineProcess
from tensord.vm.reporting.live_trace import trace_parts
from tensord.vm.reporting.locations import LocationTexts
from tensord.vm.reporting.questions import MachineFacts, answer
from tensord.vm.service.connections import front as front_module
from tensord.vm.service.connections.front import Front
from tensord.vm.service.connections.listener import PeerCredentials
from tensord.vm.service.connections.registry import ConnectionRegistry
from tensord.vm.tracing.analysis.files.parts import read_parts
from tensord.vm.tracing.analysis.trace import Trace

from ..vm.bare_engine import Bare
from .programs import CLIENTS, Writer

MAX_HEADER_BYTES = 1 << 30
MAX_ERROR_LENGTH = 1000
LIMITS: dict[str, Any] = {
    "header": 1 << 16,
    "window": 64,
    "window_bytes": 1 << 20,
    "batch": 64,
    "tensors": 64,
    "bytes": 1 << 23,
    "iterations": 100,
}
PASSES = 100_000  # passes of the engine for one message: more mean an endless loop
SUM = 42.0  # the result of the neighbour's computation


class FakeFrame:
    """A part of a ZeroMQ message."""

    def __init__(self, payload: bytes, fd: int) -> None:
        self.buffer = memoryview(payload)
        self.fd = fd

    def __len__(self) -> int:
        return len(self.buffer)

    def get(self, name: Any) -> Any:
        """The properties of the connection over which a frame came, as libzmq reports them."""
        return self.fd if name == zmq.SRCFD else f"localhost:{os.getuid()}:{os.getgid()}:{os.getpid()}"


class FakeListener:
    """A fake of a listener and its socket. `full`: identities whose queues are full."""

    def __init__(self, *, local: bool = True) -> None:
        self.local = local
        self.socket = self
        self.connections: dict[int, int] = {}
        self.origins: dict[int, str] = {}
        self.sent: dict[bytes, list[list[bytes]]] = defaultdict(list)
        self.full: set[bytes] = set()
        self.addressee = b""

    def credentials(self, frame: FakeFrame) -> PeerCredentials:
        """The sender of a frame."""
        return PeerCredentials(
            os.getuid(), os.getpid() if self.local else 0, frame.fd, self.connections.get(frame.fd, 0)
        )

    def send(self, part: Any, flags: int) -> None:
        """Keep the identity to which a message is sent, or a message of one part."""
        if flags & zmq.SNDMORE:
            if part in self.full:
                raise zmq.Again
            self.addressee = part
        else:
            self.send_multipart([part], flags)

    def send_multipart(self, frames: list[Any], _flags: int, *, copy: bool = True) -> None:  # noqa: ARG002 - as zmq's
        """Keep a message."""
        self.sent[self.addressee].append([bytes(frame) for frame in frames])


class Harness:
    """One daemon's front end, and an engine on a cpu device."""

    def __init__(self, *, local: bool = True, **limits: int) -> None:
        self.bare = Bare(workers=2)
        self.engine = self.bare.engine
        self.engine.join(pair()[0], self.bare.sink)  # the other node never sends
        self.locations = LocationTexts(self.engine)
        about = MachineFacts(self.locations, MachineProcess())
        self.engine.admission.answer = lambda session, what, arguments: answer(
            self.engine, session, what, arguments, about
        )
        self.now = 0.0
        self.limits = Limits(**limits)
        self.registry = ConnectionRegistry(
            self.engine, self.limits, lambda: self.now, lease=10.0, about={"version": "0", "pid": 1}
        )
        self.registry.departed = self.locations.ended
        self.cut: list[tuple[Any, PeerCredentials]] = []
        self.front = Front(self.engine, self.registry, lambda listener, who: self.cut.append((listener, who)))
        self.listener: Any = FakeListener(local=local)
        self.encoder = Encoder()
        self.neighbours = 0

    # -- the client's side -----------------------------------------------------------------------------------------

    def send(self, identity: bytes, *frames: bytes, fd: int = 7) -> None:
        """Receive a message, and carry out its consequences."""
        self.receive(identity, *frames, fd=fd)
        self.turn()

    def receive(self, identity: bytes, *frames: bytes, fd: int = 7) -> None:
        """Receive a message."""
        with patch.object(front_module.Front, "unexpected", staticmethod(fail)):
            self.front.receive(self.listener, identity, [FakeFrame(frame, fd) for frame in frames])

    def say(self, identity: bytes, header: Any, *payloads: bytes) -> None:
        """Encode a header, and send it."""
        self.send(identity, self.encoder.encode(header), *payloads)

    def hello(self, identity: bytes, *, token: bytes | None = None, received: int = 0) -> tuple[Any, ...]:
        """Open a session. Returns the WELCOME."""
        self.listener.sent[identity].clear()
        self.say(identity, [HELLO, VERSION, "fuzz", 1, host_identity(), False, token, received])
        welcome = decode(self.listener.sent[identity].pop(0)[0], MAX_HEADER_BYTES)
        assert welcome[0] == WELCOME
        return welcome

    def headers(self, identity: bytes) -> Iterator[tuple[Any, ...]]:
        """The headers that a client was sent since the last call, decoded."""
        sent, self.listener.sent[identity] = self.listener.sent[identity], []
        for frames in sent:
            yield decode(frames[0], MAX_HEADER_BYTES)

    def answers(self, identity: bytes) -> dict[int, tuple[int, Any]]:
        """The answers among the headers that a client was sent, by request."""
        found = [header for header in self.headers(identity) if header[0] == REPLIES]
        return {request: (kind, body) for header in found for request, kind, body in header[4]}

    def refusal(self, identity: bytes) -> tuple[Any, ...] | None:
        """The REFUSED that a client was sent, if any."""
        return next((header for header in self.headers(identity) if header[0] == REFUSED), None)

    # -- the daemon's side -----------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Run the daemon until it has no work left."""
        front = self.front
        with np.errstate(all="ignore"), patch.object(front_module.Front, "unexpected", staticmethod(fail)):
            for _ in range(PASSES):
                fed = front.admit_next()
                self.bare.drain()
                if self.engine.scheduler.dispatcher.batches:
                    self.engine.scheduler.dispatcher.flush()
                front.report_credit(everybody=True)
                front.flush()
                front.retry_sending()
                front.resume_waiting()
                if not (fed or front.fresh or front.busy or front.dirty or self.engine.live):
                    return
        raise AssertionError("the daemon does not come to rest")

    def disconnect(self, fd: int = 7) -> None:
        """The monitor reports that a connection has ended."""
        self.registry.disconnected(self.listener, fd)
        self.end_lost_connections()
        self.turn()

    def end_lost_connections(self) -> None:
        """The socket has no more messages of the connections that have ended."""
        for peer in list(self.registry.gone):
            self.registry.connection_ended(peer)

    # -- checks ----------------------------------------------------------------------------------------------------

    def compute_beside(self) -> None:
        """Check that another session gets the correct result."""
        self.neighbours += 1
        identity = b"neighbour %d" % self.neighbours
        self.say(identity, [HELLO, VERSION, "neighbour", 1, "", False, None, 0])
        meta = [[2], "float64"]
        content = np.array([1.0, 41.0]).tobytes()
        messages = [
            [2, 1, [2], "float64", "cpu:0", None, 0],
            [8, 1, "add", [], [meta, "float"], "cpu:0", None],
            [8, 2, "sum", [], [meta], "cpu:0", None],
            [0, 1, [1, 0.0], [2], 1, 0],
            [0, 2, [2], [3], 1, 0],
            [3, 3, 1, 0, 0],
        ]
        self.say(identity, [BATCH, 1, messages, [[0, -1, content]]])
        kind, body = self.answers(identity)[1]
        assert kind == 2, body
        assert np.frombuffer(body[3], body[0])[0] == SUM
        self.say(identity, [5])

    def check(self) -> None:
        """Check that a neighbour is served, that no state is left after all clients have gone, and that the trace
        does not contradict itself."""
        for session in self.engine.directory.sessions.values():
            assert not session.answering
            assert session.unfolding is None
            assert session.steps == steps_of(session)
            plans = [plan for plan in session.plans.values() if isinstance(plan, Plan)]
            assert session.operands == sum(plan.operand_count for plan in plans)
        self.compute_beside()
        for peer in list(self.registry.sessions.values()):
            self.registry.end(peer, "the end of the test")
        self.turn()
        self.engine.admission.names.unpublish(list(self.engine.directory.names))
        self.bare.drain()
        front, engine = self.front, self.engine
        kept = (
            *(front.fresh, front.busy, front.dirty, front.not_reading, front.credit_due, front.waiting),
            *(self.registry.sessions, self.registry.resumable, self.registry.peers),
            *(engine.live, engine.pending, engine.directory.sessions, engine.residency.releasing.exports),
        )
        assert not any(kept), f"something is kept: {[list(one) for one in kept]}"
        assert self.bare.device.allocated == 0, f"{self.bare.device.allocated} bytes are still allocated"
        for device in engine.devices.values():
            ledger = (device.planned, len(device.live), device.unreserved_bytes, len(device.candidates))
            assert ledger == (0, 0, 0, 0), f"planned, live, unreserved bytes, replicas: {ledger}"
        problems = read_parts(trace_parts(engine, self.locations)).trace(Trace).verify()
        assert not problems, "\n".join(map(str, problems[:5]))


def steps_of(session: VmSession) -> int:
    """The steps of all programs and routines of a session, counted from scratch."""
    linked = [routine for routine in session.routines.values() if isinstance(routine, SessionProgram)]
    programs = [one for one in session.programs.values() if isinstance(one, Program | RecordsReader)]
    known = (*(routine.program for routine in linked), *programs)
    steps = sum(one.weight if isinstance(one, Program) else one.weight() for one in known)
    return steps + sum(weight_of(routine.convention) for routine in linked if routine.convention is not None)


def fail(error: Exception) -> NoReturn:
    """Fail on an unexpected error, which the daemon itself would survive."""
    raise error


def play(writer: Writer) -> Harness:
    """Play a whole program against a new daemon, and check that it has done no harm."""
    harness = Harness(**LIMITS)
    for stream in harness.bare.device.streams:
        stream.may_inline = stream.inline = writer.inline
    fds = {identity: fd for fd, identity in enumerate(CLIENTS, 100)}
    for step in writer.steps():
        if step.what == "send":
            harness.send(step.client, *step.frames, fd=fds[step.client])
        elif step.what == "begin":
            harness.receive(step.client, *step.frames, fd=fds[step.client])
            harness.front.admit_next()
        elif step.what == "leave":
            harness.disconnect(fds[step.client])
        elif step.what == "deaf":
            harness.listener.full.add(step.client)
        else:
            harness.listener.full.discard(step.client)
            harness.turn()
        if (harness.listener, step.client) not in harness.registry.peers:
            writer.lost(step.client)
    harness.listener.full.clear()
    harness.turn()
    harness.check()
    return harness


def try_decoding(frame: bytes) -> None:
    """Check that the decoder turns any bytes into a header or a ProtocolError."""
    message = ""
    try:
        header = decode(frame, 1 << 16)
    except ProtocolError as error:
        message = error.message
    else:
        assert type(header) is tuple
        assert type(header[0]) is int
    assert len(message) < MAX_ERROR_LENGTH, "the message repeats what was sent"
