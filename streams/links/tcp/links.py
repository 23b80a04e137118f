"""All links of a node, and the port at which it takes values.

Theory of operation
    One thread accepts connections. Each handshake has a thread of its own, within `patience`; beyond `MAX_HANDSHAKES`
    concurrent handshakes the oldest is closed. A link lasts for one incarnation of its node at one address; a link to
    another incarnation replaces it when the table of members changes.

Who owns what
    The lock guards the table of links. The machine calls `to` and `join` on its own thread.
"""

from __future__ import annotations

import hmac
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ....interpreter.errors import MetadataError, NodeLost, ProtocolError, TensordError, node_lost
from ....interpreter.wire.members import Member, PortRange
from ..link import NodeLink
from ..loopback import Loopback
from .hello import VERSION, HelloAnswer, LinkHello, hear_answer, hear_hello, say
from .link import TcpLink
from .sockets import Connection, Tls, dial, listen, tuned

MAX_HANDSHAKES: Final = 32  # concurrent handshakes
CUT_TIMEOUT: Final = 1.0  # seconds for the oldest one to end after it was cut
REFUSAL_TIMEOUT: Final = 0.2  # seconds for the reason of a refusal to be sent
Report = Callable[[str, str, str], None]  # takes an event, the node, and the reason


class TcpLinks:
    """`Links` over TCP. `report` is called, on any thread, when links come and go."""

    def __init__(
        self,
        own: Member,
        ports: PortRange,
        tls: Tls | None,
        report: Report,
        *,
        patience: float,
        bandwidth: float = 0.0,
    ) -> None:
        self.node = own.node
        self.own = own
        self._tls = tls
        self._report = report
        self._patience = patience
        self._bandwidth = bandwidth
        self._token = ""
        self._members: Mapping[str, Member] = {}
        self._links: dict[str, TcpLink] = {}
        self._ended: list[TcpLink] = []  # their threads are about to end
        self._lock = threading.Lock()
        self._closed = False
        self._loopback = Loopback(own.node)
        self._greeting = threading.Semaphore(MAX_HANDSHAKES)
        self._greeters: dict[threading.Thread, socket.socket] = {}  # duplicates of the sockets of handshakes
        self._listener = listen(*ports)
        self.address = ports.at(self._listener.getsockname()[1])
        self._acceptor = threading.Thread(target=self._accept, name="tensord-accepts-values", daemon=True)
        self._acceptor.start()

    def to(self, node: str, incarnation: int = 0) -> NodeLink:
        if node == self.node:
            check_incarnation(self.own, incarnation)
            return self._loopback.to(node)
        member, link = self._members.get(node), self._links.get(node)
        if member is None:
            raise MetadataError(f"{self.node!r} knows no node {node!r}; it knows {', '.join(sorted(self._known()))}")
        if not member.is_up:
            raise gone(member, member)
        check_incarnation(member, incarnation)
        if link is None:
            raise MetadataError(f"node {node!r} takes no values: its daemon was started without an address for them")
        return link

    def _known(self) -> set[str]:
        return {self.node, *self._members}

    # -- members -------------------------------------------------------------------------------------------------------

    def join(self, members: Mapping[str, Member], token: str) -> None:
        """Set the members of the cluster. Transfers with a lost or restarted member fail."""
        before, self._members, self._token = self._members, members, token
        for node, member in before.items():
            now = members.get(node)
            if not same_daemon(member, now):
                self._lose(node, gone(member, now))
        for node, member in members.items():
            if node != self.node and member.is_up and member.values and node not in self._links:
                self._link(member)

    def _link(self, member: Member) -> None:
        def dialled(life: int) -> tuple[Connection, int]:
            return self._dial(member, life)

        def report(event: str, why: str) -> None:
            self._report(event, member.node, why)

        link = TcpLink(member.node, dialled, report, patience=self._patience, bandwidth=self._bandwidth)
        with self._lock:
            if self._closed:
                return
            self._links[member.node] = link
        link.start()

    def _lose(self, node: str, error: TensordError) -> None:
        with self._lock:
            link = self._links.pop(node, None)
            self._ended = [one for one in self._ended if not one.join(0)]
            if link is not None:
                self._ended.append(link)
        if link is not None:
            link.lose(error)

    # -- connections that we dial --------------------------------------------------------------------------------------

    def _dial(self, member: Member, life: int) -> tuple[Connection, int]:
        """A connection to a member's daemon, and its life there. ProtocolError, with the reason, if the daemon refuses
        us."""
        ports = PortRange.of(member.values)
        connection: Any = dial(ports.host, ports.low, self._patience)
        try:
            if self._tls is not None:
                connection = self._tls.dial(connection, member.fingerprint)
            answer = self._introduced(connection, member, life)
        except BaseException:
            connection.close()
            raise
        return Connection(connection, self._patience, tls=self._tls is not None), answer.life

    def _introduced(self, connection: Any, member: Member, life: int) -> HelloAnswer:
        """Send our HELLO; returns the answer, if it comes from that member."""
        if self._tls is None and member.fingerprint:
            raise ProtocolError(f"{member.node} takes values by TLS alone, and this node has encryption = none")
        hello = LinkHello(VERSION, self.node, member.node, self.own.incarnation, life, sys.byteorder, self._token)
        say(connection, hello)
        answer = hear_answer(connection, time.monotonic() + self._patience)
        if answer.why:
            raise ProtocolError(f"{member.node} at {member.values} refuses us: {answer.why[:200]}")
        if (answer.version, answer.node, answer.incarnation) != (VERSION, member.node, member.incarnation):
            raise ProtocolError(f"at {member.values} is {answer.node[:64]!r} in incarnation {answer.incarnation}")
        return answer

    # -- connections that others dial ----------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Accept connections: the acceptor's loop."""
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # for example, no descriptors
                continue
            if not self._may_greet():
                connection.close()
                continue
            greeter = threading.Thread(
                target=self._greet, args=(connection, peer[0]), name="tensord-greets", daemon=True
            )
            try:
                with self._lock:
                    self._greeters[greeter] = connection.dup()
                greeter.start()
            except (OSError, RuntimeError):  # for example, no descriptors or no threads
                connection.close()
                self._greeted(greeter)

    def _may_greet(self) -> bool:
        """Wait for a free handshake. The oldest one is cut, since its peer may never say anything."""
        if self._greeting.acquire(blocking=False):
            return True
        with self._lock, suppress(OSError, StopIteration):
            next(iter(self._greeters.values())).shutdown(socket.SHUT_RDWR)
        return self._greeting.acquire(timeout=CUT_TIMEOUT)

    def _greet(self, connection: socket.socket, host: str) -> None:
        """Do the handshake, and pass the connection to its link."""
        try:
            self._welcome(connection)
        except (OSError, TensordError) as error:
            connection.close()
            self._report("a connection was refused", host, str(error) or type(error).__name__)
        except Exception as error:
            connection.close()
            self._report("a connection was refused after an error", host, repr(error))
        finally:
            self._greeted(threading.current_thread())

    def _greeted(self, greeter: threading.Thread) -> None:
        """That thread's handshake is over."""
        self._greeting.release()
        with self._lock:
            duplicate = self._greeters.pop(greeter, None)
            if duplicate is not None:
                duplicate.close()

    def _welcome(self, plain: socket.socket) -> None:
        deadline = time.monotonic() + self._patience
        plain.settimeout(self._patience)
        secure: Any = tuned(plain) if self._tls is None else self._tls.accept(tuned(plain))
        try:
            hello, link, life = self._heard(secure, deadline)
            say(secure, HelloAnswer(VERSION, "", self.node, self.own.incarnation, life))
            if link.accepted(Connection(secure, self._patience, tls=self._tls is not None), life, hello.life):
                return
        except ProtocolError as error:
            self._refuse(secure, error)
            secure.close()
            raise
        except OSError:
            secure.close()
            raise
        secure.close()

    def _heard(self, connection: Any, deadline: float) -> tuple[LinkHello, TcpLink, int]:
        """The HELLO of the peer, its link, and the life for our answer."""
        hello = hear_hello(connection, deadline)
        link = self._checked(hello)
        life = link.greeted(hello.life)
        if not life:
            raise ProtocolError("this connection belongs to an earlier incarnation")
        return hello, link, life

    def _checked(self, hello: LinkHello) -> TcpLink:
        """The link of the dialling node; ProtocolError unless it is an admissible member."""
        token, member, link = self._token, self._members.get(hello.node), self._links.get(hello.node)
        if not token or not hmac.compare_digest(token.encode(), hello.token.encode("utf-8", "replace")):
            raise ProtocolError(
                "the token is not that of this cluster"
                if token
                else "this daemon does not know its cluster's members yet"
            )
        if hello.to != self.node:
            raise ProtocolError(f"this is {self.node}, not {hello.to[:64]!r}")
        if member is None or link is None or not member.is_up:
            raise ProtocolError(f"{hello.node} is not a member from which values are taken here")
        if hello.incarnation != member.incarnation:
            raise ProtocolError(f"{hello.node} is known here in incarnation {member.incarnation}")
        return link

    def _refuse(self, connection: Any, error: ProtocolError) -> None:
        """Send the reason. The caller closes the connection once the reason has had time to be sent."""
        with suppress(OSError):
            connection.settimeout(REFUSAL_TIMEOUT)
            say(connection, HelloAnswer(VERSION, error.message, self.node, self.own.incarnation, 0))
            connection.shutdown(socket.SHUT_WR)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> bool:
        """End all links; False if a thread has not ended in time. Pending transfers fail with NodeLost."""
        deadline = time.monotonic() + timeout
        with self._lock:
            self._closed = True
            nodes = list(self._links)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for node in nodes:
            self._lose(node, node_lost(self.node, "its daemon ends"))
        ended = self._loopback.close(timeout)
        self._acceptor.join(max(0.0, deadline - time.monotonic()))
        self._listener.close()
        with self._lock:
            threads = list(self._greeters)
            for heard in self._greeters.values():
                with suppress(OSError):
                    heard.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for link in self._ended:
            ended &= link.join(max(0.0, deadline - time.monotonic()))
        return ended and not any(thread.is_alive() for thread in (self._acceptor, *threads))


def check_incarnation(member: Member, wanted: int) -> None:
    """Raise NodeLost unless the member has that incarnation; 0 stands for any."""
    node, known = member.node, member.incarnation
    if wanted not in {0, known}:
        why = "was started anew" if wanted < known else f"is known here in incarnation {known}"
        raise node_lost(node, f"its daemon {why}, and incarnation {wanted} is meant")


def same_daemon(before: Member, now: Member | None) -> bool:
    """Return whether the member is still the same daemon."""
    if now is None or not now.is_up:
        return not before.is_up and now is not None
    identity = (before.incarnation, before.values, before.fingerprint, before.is_up)
    return identity == (now.incarnation, now.values, now.fingerprint, True)


def gone(before: Member, now: Member | None) -> NodeLost:
    """The error for a node that is lost or has been replaced."""
    if now is None or now.state == "left":
        return node_lost(before.node, "it has left the cluster")
    if not now.is_up:
        return node_lost(before.node, "its daemon has ended")
    if now.incarnation != before.incarnation:
        return node_lost(before.node, f"its daemon was started anew, and incarnation {before.incarnation} is gone")
    return node_lost(before.node, "it takes values elsewhere now")
