"""The connection registry: connections and sessions, from HELLO to their end. Used by the loop's thread alone."""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....interpreter.errors import ConnectionLost, ProtocolError, QuotaError
from ....interpreter.schema.opdef import REGISTRY
from ....interpreter.schema.own_op import own_ops
from ....interpreter.wire.fields import is_natural, is_text
from ....interpreter.wire.forms import shown
from ....interpreter.wire.frames import HELLO, VERSION, WELCOME, host_identity
from ....interpreter.wire.limits import Limits
from ....interpreter.wire.names import OBSERVER_NAME, clean
from ....streams.device import libraries_of
from ...client_files import open_file_below, open_peer_file
from ...engine import Engine
from ...log import log
from ...model.session import ReplySink, VmSession
from .inbound import decode_header
from .listener import Listener, PeerCredentials
from .outbound import acknowledge, send
from .peer import ConnectionEvent, ConnectionState, Peer, fields, session_of
from .process_end import SharingProcess

CLOSED_BY_CLIENT = "closed by its client"
PROCESS_DIED = "its process has died"
SOCKET_GRACE = 0.1  # seconds within which a connection ends after its process, unless another process has the socket
UNLIMITED = 1 << 62
REMEMBERED_PEERS = 4096  # ended connections that are remembered, since messages from them may still arrive


class Hello(NamedTuple):
    """A client's first message.

    `name`: None for the command line. `token`: of the session to resume, and `received`: the number of the last reply
    that the client has received.
    """

    name: str | None
    pid: int
    host: str
    strict: bool
    token: bytes | None
    received: int

    def is_valid(self, longest: int) -> bool:
        """Whether each field has its type, and the name at most `longest` characters."""
        texts = is_text(self.host) and (self.name is None or is_text(self.name))
        numbers = is_natural(self.pid) and is_natural(self.received) and type(self.strict) is bool
        return texts and numbers and type(self.token) in {type(None), bytes} and len(self.name or "") <= longest


class ConnectionRegistry:
    """Connections and their sessions.

    `about`: further settings for WELCOME. Front and loop set the callbacks: `sink` makes the reply function of a
    session, `tell` sends a header to a peer, `changed` notes that something must be sent to a peer, `forget` drops
    the front's state of a peer, `watch_process` watches for the end of a peer's process until `unwatch_process` is
    called, and `before_hello` processes the events of the listeners' monitors.
    """

    def __init__(
        self, engine: Engine, limits: Limits, clock: Callable[[], float], *, lease: float, about: dict[str, Any]
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.clock = clock
        self.lease = lease
        self.about = about
        self.host = host_identity()
        self.closing = False
        self.draining = False  # only sessions of the command line may be opened
        self.files: tuple[Path, ...] = ()  # directories below which clients over tcp may load files
        self.checkpoints: tuple[Path, ...] = ()  # directories below which they may write and restore checkpoints
        self.gpu_memory = "user"  # the users whose clients get blocks of GPUs' memory: the daemon's, anybody, nobody
        self.descriptors = UNLIMITED  # the most descriptors of all sessions
        self.peers: dict[tuple[Listener, bytes], Peer] = {}
        self.sessions: dict[int, Peer] = {}
        self.resumable: dict[bytes, Peer] = {}  # by token
        self.gone: dict[Peer, None] = {}  # peers whose connection has ended, but whose messages may be in the socket
        self.dead: dict[Peer, float] = {}  # peers whose process has ended, with the time when that was noticed
        self._left: OrderedDict[tuple[Listener, bytes], None] = OrderedDict()
        self.sink: Callable[[Peer], ReplySink]
        self.tell: Callable[[Peer, list[Any]], None]
        self.changed: Callable[[Peer], None]
        self.forget: Callable[[Peer], None]
        self.watch_process: Callable[[Peer], None] = lambda _peer: None
        self.unwatch_process: Callable[[Peer], None] = lambda _peer: None
        self.before_hello: Callable[[], None] = lambda: None
        self.departed: Callable[[VmSession], None] = lambda _session: None  # called before a session is closed

    def hello(self, listener: Listener, identity: bytes, header: Sequence[Any], frame: Any) -> None:
        """HELLO: open a session, or resume one."""
        if header[0] != HELLO:
            raise ProtocolError("the first message of a connection is HELLO")
        if len(header) < 2 or header[1] != VERSION:
            spoken = shown(header[1]) if len(header) > 1 else "none"
            raise ProtocolError(f"protocol version {spoken}; this daemon speaks version {VERSION}")
        hello = Hello(*fields(header, 8)[2:])
        if not hello.is_valid(self.limits.text):
            raise ProtocolError("a HELLO is [0, version, name, pid, host, strict, token, received]")
        if self.closing:
            raise ConnectionLost("the daemon is shutting down")
        self.before_hello()  # the monitor's events about earlier connections with the same fd come first
        credentials = listener.credentials(frame)
        if hello.token is not None:
            self.resume(listener, identity, credentials, hello.token, hello.received)
        else:
            self.open(listener, identity, credentials, hello)

    def open(self, listener: Listener, identity: bytes, credentials: PeerCredentials, hello: Hello) -> None:
        """Open a new session."""
        self.check_session_limits(listener)
        if self.draining and hello.name is not None:
            raise ConnectionLost("the daemon is being drained and takes no new sessions: connect to another node")
        name, host = hello.name, hello.host
        peer = Peer(listener, identity, credentials, self.limits, self.clock())
        peer.is_command_line, peer.name = name is None, OBSERVER_NAME if name is None else clean(name)
        peer.shared = bool(listener.local and credentials.pid and self.host and host == self.host)
        self.watch_process(peer)
        if not credentials.pid:
            peer.credentials = credentials._replace(pid=hello.pid)  # as the client claims, for display only
        if not listener.local:
            peer.token = secrets.token_bytes(16)
        peer.session = session = self.engine.open_session(
            self.sink(peer), peer.name, strict=hello.strict, limits=self.limits
        )
        session.files.may_store = listener.local and credentials.uid in (os.getuid(), 0)
        session.files.stores = () if listener.local else self.checkpoints
        self.allow_blocks(peer, session)
        if peer.shared:
            session.files.open = partial(open_peer_file, credentials.pid)
        elif self.files:
            session.files.open = partial(open_file_below, self.files)
        peer.on(ConnectionEvent.GREETED)
        self.peers[listener, identity] = self.sessions[session.id] = peer
        tell(peer, "session opened", pid=peer.credentials.pid)
        self.welcome(peer)

    def allow_blocks(self, peer: Peer, session: VmSession) -> None:
        """Allow a client blocks of GPUs' memory, if the configuration does, and the end of its process can be watched.

        By default, the configuration allows processes of the daemon's user on this machine.
        """
        if peer.pidfd < 0:
            return
        if self.gpu_memory == "nobody" or (self.gpu_memory == "user" and peer.credentials.uid != os.getuid()):
            session.gpu.refusal = f"since its configuration says gpu_memory = {self.gpu_memory!r}"
            return
        session.gpu.refusal = ""
        session.gpu.watch = partial(SharingProcess, peer.pidfd, peer.credentials.pid)

    def check_session_limits(self, listener: Listener) -> None:
        """QuotaError if the sessions have reached the limit of their number, or of their descriptors."""
        open_now = len(self.sessions)
        if open_now >= self.limits.sessions:
            raise QuotaError(
                f"{open_now} sessions are open, which is the limit of this daemon; close some, or raise the limit "
                "(sessions)"
            )
        taken = sum(1 + (peer.pidfd >= 0) for peer in self.sessions.values())
        if taken + 1 + listener.local > self.descriptors:
            raise QuotaError(
                f"{open_now} sessions are open, and the daemon has no descriptors for more; close some, or raise its "
                "limit of open files (ulimit -n, or LimitNOFILE= in its unit)"
            )

    def resume(
        self, listener: Listener, identity: bytes, credentials: PeerCredentials, token: bytes, received: int
    ) -> None:
        """Resume a session on another connection, and resend the replies that the client has not received."""
        peer = self.resumable.get(token)
        if peer is None or peer.listener is not listener:
            raise ConnectionLost("this session is no longer known; its lease may have expired")
        if peer.state is ConnectionState.OPEN:  # the loss of the old connection is not handled yet
            self.lose(peer)
        peer.on(ConnectionEvent.RESUMED)
        peer.identity, peer.credentials = identity, credentials._replace(pid=peer.credentials.pid)
        self.peers[listener, identity] = peer
        tell(peer, "session resumed")
        self.welcome(peer)
        acknowledge(peer, received)
        for _, frames in tuple(peer.unacknowledged):
            send(peer, frames)
        self.changed(peer)

    def welcome(self, peer: Peer) -> None:
        """Send WELCOME."""
        if peer.token is not None:
            self.resumable[peer.token] = peer
        devices = {name: tuple(sorted(device.backend.missing)) for name, device in self.engine.devices.items()}
        settings = self.about | {
            "inline_work": self.engine.inline_work,
            "window": self.limits.window,
            "window_bytes": self.limits.window_bytes,
            "batch": self.limits.batch,
            "header": self.limits.header,
            "frame": self.limits.frame,
            "frames": self.limits.frames,
            "text": self.limits.text,
            "segments": self.limits.segments,
            "mapped": self.limits.mapped,
            "shared": peer.shared,
            "gpus": self.gpus_for(peer),
            "libraries": libraries_of({name: one.backend for name, one in self.engine.devices.items()}),
            "ops": own_ops(REGISTRY),
            "files": bool(self.files) and not peer.shared,
            "lease": self.lease if peer.resumable else 0,
        }
        self.tell(peer, [WELCOME, VERSION, session_of(peer).id, peer.token, devices, settings, peer.batch])

    def gpus_for(self, peer: Peer) -> dict[str, str]:
        """The bus ids of the devices whose memory the peer may use."""
        if session_of(peer).gpu.refusal:
            return {}
        return {name: one.backend.bus_id for name, one in self.engine.devices.items() if one.backend.bus_id}

    def disconnected(self, listener: Listener, fd: int) -> None:
        """Note that a connection has ended. `connection_ended` follows once its messages are received."""
        for peer in self.peers.values():
            if peer.listener is listener and peer.credentials.fd == fd:
                self.gone[peer] = None

    def connection_ended(self, peer: Peer) -> None:
        """Handle the end of a connection: on ipc the session ends, on tcp its lease begins.

        The session of a peer that has sent BYE ends once its earlier messages are admitted.
        """
        if peer.leaving:
            self.gone.pop(peer, None)
        elif peer.resumable:
            self.lose(peer)
        else:
            self.end(peer, PROCESS_DIED if peer in self.dead else "the connection is gone")

    def died(self, peer: Peer) -> None:
        """Note that a process has ended. Its connection ends, too, unless another process has inherited the socket."""
        self.dead[peer] = self.clock()

    def end_inherited(self) -> None:
        """End the sessions of ended processes whose connections have not ended by themselves."""
        now = self.clock()
        self.gone.update(dict.fromkeys(peer for peer, since in self.dead.items() if now - since > SOCKET_GRACE))

    def lose(self, peer: Peer) -> None:
        """Note that the connection of a resumable session is lost."""
        peer.on(ConnectionEvent.LOST)
        self.gone.pop(peer, None)
        peer.unsent.clear()  # sent again on resumption
        peer.drop_packed()  # not counted as received, so the client resends them
        del self.peers[peer.listener, peer.identity]
        self.left(peer.listener, peer.identity)
        peer.away_since = self.clock()
        tell(peer, "connection lost", lease=self.lease)

    def left(self, listener: Listener, identity: bytes) -> None:
        """Remember that a connection has ended, since libzmq may still have messages from it."""
        self._left[listener, identity] = None
        self._left.move_to_end((listener, identity))
        if len(self._left) > REMEMBERED_PEERS:
            self._left.popitem(last=False)

    def has_left(self, listener: Listener, identity: bytes, frame: Any) -> bool:
        """Whether the frame came over an ended connection. False for a HELLO, since routing ids are reused."""
        if (listener, identity) not in self._left:
            return False
        with suppress(ProtocolError):
            if decode_header(frame, self.limits)[0] == HELLO:
                del self._left[listener, identity]
                return False
        return True

    def end_leases(self) -> None:
        """End the sessions that were not resumed within their lease."""
        now = self.clock()
        for peer in list(self.resumable.values()):
            if peer.state is ConnectionState.AWAY and now - peer.away_since > self.lease:
                self.end(peer, "its lease has expired")

    def end(self, peer: Peer, why: str) -> None:
        """End a connection and its session: cancel its live instructions, and release its tensors."""
        if peer.state is ConnectionState.CLOSED:
            return
        peer.on(ConnectionEvent.ENDED)
        self.gone.pop(peer, None)
        self.dead.pop(peer, None)
        session = session_of(peer)
        if self.peers.get((peer.listener, peer.identity)) is peer:
            del self.peers[peer.listener, peer.identity]
            self.left(peer.listener, peer.identity)
        self.sessions.pop(session.id, None)
        if peer.token is not None:
            self.resumable.pop(peer.token, None)
        self.forget(peer)
        if peer.pidfd >= 0:
            self.unwatch_process(peer)
            os.close(peer.pidfd)
            peer.pidfd = -1
        self.departed(session)
        self.engine.close(session)
        tell(peer, "session closed", why=why)


def tell(peer: Peer, event: str, **about: Any) -> None:
    """Log an event of a session with its owner; at level debug for a session of the command line."""
    write = log.debug if peer.is_command_line else log.info
    credentials = peer.credentials
    who = {"uid": credentials.uid} if credentials.uid >= 0 else {"key": credentials.key} if credentials.key else {}
    write(event, session=session_of(peer).id, name=peer.name, **who, **about)
