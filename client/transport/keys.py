"""The client's keys, for a daemon that requires keys: `connect(keys=...)` or $TENSORD_KEYS.

The value names a secret key file (NAME.key_secret), or a directory with one; the daemon's public key, server.key, lies
next to the secret key.
"""

from __future__ import annotations

import os
from pathlib import Path

import zmq

from ...interpreter.errors import MetadataError
from ...interpreter.wire.keys import PUBLIC_SUFFIX, SECRET_SUFFIX, read_public, read_secret

VARIABLE = "TENSORD_KEYS"
SERVER = "server"


def curve_options(keys: str | os.PathLike[str] | None = None, server_key: str | None = None) -> dict[int, bytes]:
    """Socket options for tcp; none if `keys` and $TENSORD_KEYS are unset. MetadataError says what is missing.

    `server_key`: the daemon's public key if a member of its cluster has told it, "" for none.
    """
    named = os.environ.get(VARIABLE, "") if keys is None else os.fspath(keys)
    if not named or server_key == "":
        return {}
    secret = _secret_file(Path(named).expanduser())
    pair = read_secret(secret)
    return {
        zmq.CURVE_SERVERKEY: server_key.encode() if server_key else server_key_beside(secret),
        zmq.CURVE_PUBLICKEY: pair.public,
        zmq.CURVE_SECRETKEY: pair.secret,
    }


def server_key_beside(secret: Path) -> bytes:
    """The daemon's public key, from the file next to the client's secret one."""
    server = secret.parent / f"{SERVER}{PUBLIC_SUFFIX}"
    if not server.exists():
        raise MetadataError(f"{server} is missing: copy it from the daemon's key directory")
    return read_public(server)


def socket_options(
    address: str, keys: str | os.PathLike[str] | None = None, server_key: str | None = None
) -> dict[int, bytes]:
    """Socket options for a daemon at that address: none over ipc, where the kernel identifies users."""
    return {} if address.startswith("ipc://") else curve_options(keys, server_key)


def _secret_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(file for file in path.glob(f"*{SECRET_SUFFIX}") if file.stem != SERVER)
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(file.name for file in files)
        raise MetadataError(f"{path} holds several secret keys ({names}): name one of the files")
    raise MetadataError(
        f"{path} holds no client's {SECRET_SUFFIX} file: make one with tensord keygen {path} --name NAME"
    )
