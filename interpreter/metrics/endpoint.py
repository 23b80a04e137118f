"""Where metrics are served: HOST:PORT, or a Unix socket for this user only; and the token that others need.

Metrics name programs and ops, so nothing is served beyond this machine without a token.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import MetadataError
from ..wire.addresses import ANY_HOST, PATH_LIMIT, is_loopback, parse, resolve

UNIX_PREFIX: Final = "unix:"
USUAL_ENDPOINT: Final = "127.0.0.1:9464"  # the usual port of OpenTelemetry's exporters
MIN_TOKEN_LENGTH: Final = 16  # characters of a token
MAX_TOKEN_LENGTH: Final = 4096
ENDPOINT_FORMS: Final = '"HOST:PORT", such as "127.0.0.1:9464", or "unix:/an/absolute/path"'


class Endpoint(NamedTuple):
    """A checked endpoint: a `path`, or a resolved `host` ("" for any) and a `port` (0 for any free one)."""

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    local: bool = True

    @classmethod
    def of(cls, text: str) -> Endpoint:
        """The endpoint in a text; MetadataError says what is wrong, and what to write."""
        if text.startswith(UNIX_PREFIX):
            path = text.removeprefix(UNIX_PREFIX)
            if not path.startswith("/") or path.endswith("/") or "\0" in path or len(os.fsencode(path)) > PATH_LIMIT:
                raise MetadataError(
                    f"{text!r}: write {UNIX_PREFIX}/an/absolute/path, of {PATH_LIMIT} bytes at the most"
                )
            return cls(text, path=path)
        try:
            address = parse(f"tcp://{text}")
        except MetadataError:
            raise MetadataError(f"{text!r} is not an address for metrics: write {ENDPOINT_FORMS}") from None
        host = "" if address.host == ANY_HOST else str(resolve(address.host))
        shown = f"[{host}]" if ":" in host else host or ANY_HOST
        return cls(text, host=host, port=address.port, local=is_loopback(f"tcp://{shown}:{address.port}"))

    def require(self, token: Path | None) -> None:
        """MetadataError if other machines can reach the endpoint, and there is no token."""
        if not self.local and token is None:
            raise MetadataError(
                f"{self.text} is reachable from other machines, and there is no token: name a file with one, or listen "
                f"on {USUAL_ENDPOINT} or {UNIX_PREFIX}PATH"
            )


def read_token(file: Path) -> str:
    """The token in a file that only its owner may read; MetadataError says what to do."""
    try:
        mode, text = (
            stat.S_IMODE(file.stat().st_mode),
            file.read_bytes()[: MAX_TOKEN_LENGTH + 1].decode("ascii").strip(),
        )
    except OSError as error:
        raise MetadataError(f"{file}: {error.strerror}; make a token with: openssl rand -hex 32") from None
    except UnicodeDecodeError:
        raise MetadataError(f"{file} has no token: one is of ASCII letters, without spaces") from None
    if mode & 0o077:
        raise MetadataError(f"others may read the token in {file} (mode {mode:04o}): run chmod 600 {file}")
    if not MIN_TOKEN_LENGTH <= len(text) <= MAX_TOKEN_LENGTH or not text.isprintable() or len(text.split()) != 1:
        raise MetadataError(
            f"{file} has no token: one has {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} letters, without spaces"
        )
    return text
