"""Authentication of peers: the decision behind ZAP, the ZeroMQ Authentication Protocol (RFC 27).

libzmq asks before it delivers the first message of a peer, so nothing from a refused peer is decoded. It asks over
`inproc://zeromq.zap.01` in the context of the daemon. The server of that socket (a REP) passes the frames to
`Gatekeeper.answer` and sends back the result. The decision depends on the *domain*, which is set on the socket of each
address: permission at one address says nothing about another.

- `tensord:ipc`: libzmq passes on the kernel's credentials as "localhost:UID:GID:PID"; only our own uid may connect.
- `tensord:loopback`: tcp without keys, for processes of this machine only; the peer's address is checked again.
- `tensord:curve`: the client has proved that it owns a secret key; its public key must be in the allow list, which is
  read again whenever the file changes.

A request names the peer's host but not its port. So a refusal is kept until the listener's monitor says which
connection has ended because of it (`refusal_of`), and is logged then. If the monitor says nothing, the refusal is
logged without the port.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from zmq.utils import z85

from ....interpreter.wire.keys import is_key
from ...log import log
from ..process.errors import StartError
from .refusals import RefusalLog


class AllowList:
    """Public keys and the names beside them. One line each: the key, a space, a name; lines with # are comments.

    A key may itself begin with #; such a line is a key, not a comment. If the file becomes unreadable, or writable by
    others, no key is allowed. A malformed line allows no key and does not affect other lines.
    """

    def __init__(self, path: Path) -> None:
        """Read the file for the first time; StartError if it is unusable."""
        self.path = path
        self.names: dict[bytes, str] = {}
        self._stamp: tuple[int, int, int] | None = None
        problems = self._read()
        if problems:
            raise StartError(f"{path}: {problems[0]}")

    def name_of(self, key: bytes) -> str | None:
        """The present name beside a key (Z85); None if the key is not allowed."""
        try:
            changed = _stamp(self.path.stat()) != self._stamp
        except OSError:
            changed = True
        if changed:
            for problem in self._read():
                log.warning("the allow list has a fault", file=str(self.path), problem=problem)
        return self.names.get(key)

    def _read(self) -> list[str]:
        """Read the file, and return its problems."""
        self.names, self._stamp = {}, None
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_mode & 0o022:
                    return [f"others may write it (mode {status.st_mode & 0o7777:04o}): run chmod 600 {self.path}"]
                lines = file.read().splitlines()
        except OSError as error:
            return [f"{error.strerror}. It lists the clients' public keys, one per line, as tensord keygen prints them"]
        self._stamp = _stamp(status)
        return [problem for number, line in enumerate(lines, 1) if (problem := self._take(line, number))]

    def _take(self, line: bytes, number: int) -> str:
        key, _, name = line.strip().partition(b" ")
        if is_key(key):
            self.names[key] = name.strip().decode(errors="replace") or key.decode()
        elif key and not key.startswith(b"#"):
            return f"line {number} is not a key: write the line that tensord keygen prints"
        return ""


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


ENDPOINT: Final = "inproc://zeromq.zap.01"
IPC: Final = b"tensord:ipc"
LOOPBACK: Final = b"tensord:loopback"
CURVE: Final = b"tensord:curve"

VERSION: Final = b"1.0"
MAX_FIELD_BYTES: Final = 255  # the most bytes of a field that are read
MATCH_TIMEOUT: Final = 2.0  # seconds
MAX_REFUSALS: Final = 100  # that wait for the listener's monitor


class PeerRefused(Exception):  # noqa: N818 - what happened to the peer; never leaves this file
    """The peer may not connect. `about`: further fields for the log."""

    def __init__(self, reason: str, **about: str) -> None:
        super().__init__(reason)
        self.about = about


class RefusedPeer(NamedTuple):
    """A refused peer. `host`: its address without a port; `about`: further fields for the log."""

    since: float
    host: str
    reason: str
    about: Mapping[str, str]


class Gatekeeper:
    """Answers ZAP requests. `allowed`: the allow list, if an address uses keys."""

    def __init__(
        self,
        allowed: AllowList | None = None,
        *,
        uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowed = allowed
        self.clock = clock
        self.refused: deque[RefusedPeer] = deque()  # not logged yet
        self.uid = os.getuid() if uid is None else uid
        self.refusals = RefusalLog()

    def answer(self, frames: Sequence[bytes]) -> list[bytes]:
        """The reply to a request; 400 refuses the peer, 500 answers a malformed request. Never raises.

        The daemon reads the reply's user id from each of the peer's messages as "User-Id": "uid:1000", "loopback" or
        "key:NAME".
        """
        number = bytes(frames[1]) if len(frames) > 1 else b""
        if len(frames) < 6 or frames[0] != VERSION:
            return _reply(number, b"500", "not a ZAP 1.0 request")
        try:
            user = self._admit(frames[2], frames[3], frames[5], frames[6:])
        except PeerRefused as refused:
            self.refused.append(RefusedPeer(self.clock(), _text(frames[3]), str(refused), refused.about))
            self.tell_overdue()
            return _reply(number, b"400", str(refused))
        except Exception:
            log.exception("a peer was refused, since the question about it could not be answered")
            return _reply(number, b"500", "internal error")
        return _reply(number, b"200", "OK", user)

    def refusal_of(self, origin: str) -> RefusedPeer | None:
        """Remove and return the refusal that has ended a connection from `origin`, for the listener to log, or None.

        Of several refusals of one host, this is the first, since libzmq ends the connections in that order.
        """
        if not self.refused:
            return None
        of_host = (one for one in self.refused if origin.startswith((f"{one.host}:", f"[{one.host}]:")))
        found = next(of_host, self.refused[0])
        self.refused.remove(found)
        return found

    def tell_overdue(self) -> None:
        """Log the refusals that no monitor has matched for `MATCH_TIMEOUT` seconds, or that are too many to keep."""
        while self.refused and (
            len(self.refused) > MAX_REFUSALS or self.clock() - self.refused[0].since > MATCH_TIMEOUT
        ):
            _, host, reason, about = self.refused.popleft()
            self.refusals.tell("a peer was refused", reason=reason, peer=host, **about)

    def _admit(self, domain: bytes, address: bytes, mechanism: bytes, credentials: Sequence[bytes]) -> str:
        """The user id of the peer; PeerRefused if it may not connect."""
        expected = b"CURVE" if domain == CURVE else b"NULL"
        if mechanism != expected:
            raise PeerRefused(f"this address needs the mechanism {expected.decode()}")
        if domain == IPC:
            return self._by_uid(address)
        if domain == LOOPBACK:
            return _by_address(address)
        if domain == CURVE:
            return self._by_key(credentials)
        raise PeerRefused("unknown domain")

    def _by_uid(self, address: bytes) -> str:
        parts = address.split(b":")
        if (
            len(parts) != 4
            or parts[0] != b"localhost"
            or not all(part.isdigit() and len(part) <= 10 for part in parts[1:])
        ):
            raise PeerRefused("the peer's credentials are not known")
        if (uid := int(parts[1])) != self.uid:
            raise PeerRefused(f"uid {uid} is not the daemon's")
        return f"uid:{uid}"

    def _by_key(self, credentials: Sequence[bytes]) -> str:
        if self.allowed is None or len(credentials) != 1 or len(credentials[0]) != 32:
            raise PeerRefused("no client's key is known")
        key = z85.encode(bytes(credentials[0]))
        name = self.allowed.name_of(key)
        if name is None:
            raise PeerRefused("the client's key is not in the allow list", key=key.decode())
        return f"key:{name}"


def _by_address(address: bytes) -> str:
    with suppress(ValueError):
        ip = ip_address(_text(address))
        if (getattr(ip, "ipv4_mapped", None) or ip).is_loopback:
            return "loopback"
    raise PeerRefused("the peer is not on this machine, and has no keys")


def _text(frame: bytes) -> str:
    return bytes(frame[:MAX_FIELD_BYTES]).decode("ascii", "replace")


def _reply(number: bytes, status: bytes, text: str, user: str = "") -> list[bytes]:
    return [VERSION, number, status, text.encode()[:MAX_FIELD_BYTES], user.encode()[:MAX_FIELD_BYTES], b""]
