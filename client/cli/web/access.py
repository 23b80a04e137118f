"""Checks requests: they need the token and a name of this machine, and may not come from another site in the browser.

Another site can make a browser send requests here, with the cookie of this page if it is on another port of the same
machine; so requests that name another origin are refused. It can also point a name of its own to 127.0.0.1 (DNS
rebinding), which makes it the same origin; so requests have to name an address, or this machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from socket import gethostname
from typing import Final
from urllib.parse import urlsplit

BEARER: Final = "bearer "


class Refused(Exception):  # noqa: N818 - an answer
    """A request that is answered with a status and a reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Access:
    """The check. `host`: the name to listen on, which is allowed. `cookie`: the name of the cookie."""

    token: str
    host: str
    cookie: str

    def check(self, headers: Mapping[str, str], cookies: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Refused, unless the request may be answered."""
        host = headers.get("Host", "")
        if not self.knows(host):
            raise Refused(HTTPStatus.FORBIDDEN, "use the address of this server, or localhost")
        origin = headers.get("Origin")
        if origin is not None and urlsplit_netloc(origin) != host.lower():
            raise Refused(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
        if not any(self.matches(given) for given in self.given(headers, cookies, query)):
            raise Refused(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong: open the address that was printed")

    def knows(self, host: str) -> bool:
        """Return whether it is an address, or a name of this machine. Any port is accepted, since it may have been
        forwarded."""
        name = name_of(host)
        with suppress(ValueError):
            return bool(ip_address(name))
        return name in {"localhost", self.host.lower(), gethostname().lower()}

    def matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="surrogateescape"), self.token.encode())

    def given(self, headers: Mapping[str, str], cookies: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
        """The tokens of a request."""
        bearer = headers.get("Authorization", "")
        tokens = [query.get("token", ""), cookies.get(self.cookie, "")]
        return [*tokens, bearer[len(BEARER) :] if bearer[: len(BEARER)].lower() == BEARER else ""]


def name_of(host: str) -> str:
    """The host of a header, without its port; empty if it cannot be parsed."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


def urlsplit_netloc(origin: str) -> str:
    with suppress(ValueError):
        return urlsplit(origin).netloc.lower()
    return ""
