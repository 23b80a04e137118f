"""Authentication of peers: the decision behind ZAP, the ZeroMQ Authentication Protocol (RFC 27).

libzmq asks before it delivers the first message of a peer, so nothing from a refused peer is decoded. It asks over
`inproc://zeromq.zap.01` in the context of the daemon. The server of that socket (a REP) passes the frames to
`Gatekeeper.answer` and sends back the result. The decision depends on the *domain*, which is set on the socket of each
address: permission at one address says nothing about another.

- `tensord:ipc`: libzmq passes on the kernel's credentials as "localhost:UID:GID:PID"; only our own uid may connect.
- `tensord:loopback`: tcp without keys, for processes of this machine only; the peer's address is checked again.
- `tensord:curve`: the client has proved that it owns a secret key; its public key must be in the allow list.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from zmq.utils import z85

from ..log import log
from .allowlist import AllowList
from .refusals import Refusals

ENDPOINT: Final = "inproc://zeromq.zap.01"
IPC: Final = b"tensord:ipc"
LOOPBACK: Final = b"tensord:loopback"
CURVE: Final = b"tensord:curve"

VERSION: Final = b"1.0"
LONGEST: Final = 255  # bytes of a field that are read


class Refused(Exception):  # noqa: N818 - what happened to the peer; never leaves this file
    """The peer may not connect. `about`: what else the log says of it."""

    def __init__(self, reason: str, **about: str) -> None:
        super().__init__(reason)
        self.about = about


class Gatekeeper:
    """Answers ZAP requests. `allowed`: the allow list, if an address uses keys."""

    def __init__(self, allowed: AllowList | None = None, *, uid: int | None = None) -> None:
        self.allowed = allowed
        self.uid = os.getuid() if uid is None else uid
        self.refusals = Refusals()

    def answer(self, frames: Sequence[bytes]) -> list[bytes]:
        """The reply to a request; 400 refuses the peer, 500 answers a malformed request. Never raises.

        The daemon reads the reply's user id from each of the peer's messages as "User-Id": "uid:1000", "loopback" or
        "key:NAME".
        """
        number = bytes(frames[1]) if len(frames) > 1 else b""
        if len(frames) < 6 or frames[0] != VERSION:
            return _reply(number, b"500", "no ZAP 1.0 request")
        try:
            user = self._admit(frames[2], frames[3], frames[5], frames[6:])
        except Refused as refused:
            self.refusals.tell("a peer was refused", reason=str(refused), peer=_text(frames[3]), **refused.about)
            return _reply(number, b"400", str(refused))
        except Exception:
            log.exception("a peer was refused, since the question about it could not be answered")
            return _reply(number, b"500", "internal error")
        return _reply(number, b"200", "OK", user)

    def _admit(self, domain: bytes, address: bytes, mechanism: bytes, credentials: Sequence[bytes]) -> str:
        """The user id of the peer; Refused if it may not connect."""
        expected = b"CURVE" if domain == CURVE else b"NULL"
        if mechanism != expected:
            raise Refused(f"this address needs the mechanism {expected.decode()}")
        if domain == IPC:
            return self._by_uid(address)
        if domain == LOOPBACK:
            return _by_address(address)
        if domain == CURVE:
            return self._by_key(credentials)
        raise Refused("unknown domain")

    def _by_uid(self, address: bytes) -> str:
        parts = address.split(b":")
        if len(parts) != 4 or parts[0] != b"localhost" or not all(map(_is_number, parts[1:])):
            raise Refused("the peer's credentials are not known")
        if (uid := int(parts[1])) != self.uid:
            raise Refused(f"uid {uid} is not the daemon's")
        return f"uid:{uid}"

    def _by_key(self, credentials: Sequence[bytes]) -> str:
        if self.allowed is None or len(credentials) != 1 or len(credentials[0]) != 32:
            raise Refused("no client's key is known")
        key = z85.encode(bytes(credentials[0]))
        name = self.allowed.name_of(key)
        if name is None:
            raise Refused("the client's key is not in the allow list", key=key.decode())
        return f"key:{name}"


def _by_address(address: bytes) -> str:
    with suppress(ValueError):
        ip = ip_address(_text(address))
        if (getattr(ip, "ipv4_mapped", None) or ip).is_loopback:
            return "loopback"
    raise Refused("the peer is not on this machine, and has no keys")


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 10


def _text(frame: bytes) -> str:
    return bytes(frame[:LONGEST]).decode("ascii", "replace")


def _reply(number: bytes, status: bytes, text: str, user: str = "") -> list[bytes]:
    return [VERSION, number, status, text.encode()[:LONGEST], user.encode()[:LONGEST], b""]
