"""Key files of CURVE, the encryption and authentication of ZeroMQ over tcp (CurveZMQ, RFC 26).

A pair is two files in pyzmq's certificate format (zmq.auth): NAME.key holds the public key, NAME.key_secret both. A
secret that others could read is refused, since it would prove nothing. Files are never overwritten, and are complete or
absent.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

import zmq

from ..errors import MetadataError
from ..whole_file import write_whole

PUBLIC_SUFFIX: Final = ".key"
SECRET_SUFFIX: Final = ".key_secret"  # noqa: S105 - a file name's suffix

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_KEY: Final = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")  # Z85, RFC 32


class Pair(NamedTuple):
    """Keys as Z85 text; `secret` is empty if only the public one was read."""

    public: bytes
    secret: bytes


def create(directory: Path, name: str) -> tuple[Path, Path]:
    """Write a new pair and return the paths of the public and the secret file. MetadataError if one exists."""
    files = paths(directory, name)
    public, secret = zmq.curve_keypair()
    for file in files:
        if file.exists():
            raise MetadataError(f"{file} exists, and keys are never overwritten: remove it, or choose another --name")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f'    public-key = "{public.decode()}"\n'
    shown = f"# The public key of {name!r}, for tensord. May be shown to anybody.\ncurve\n{line}"
    hidden = f"# The secret key of {name!r}, for tensord. DO NOT SHARE.\ncurve\n{line}"
    write_whole(files[1], f'{hidden}    secret-key = "{secret.decode()}"\n', mode=0o600, new=True)
    try:
        write_whole(files[0], shown, mode=0o644, new=True)
    except BaseException:
        files[1].unlink()  # half a pair is useless, and would block the next attempt
        raise
    return files


def paths(directory: Path, name: str) -> tuple[Path, Path]:
    """The paths of the public and the secret file of a pair; MetadataError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise MetadataError(f"{name!r} is not a name for a key: letters, digits, '.', '_' and '-', 64 at most")
    return directory / f"{name}{PUBLIC_SUFFIX}", directory / f"{name}{SECRET_SUFFIX}"


def read_public(path: Path) -> bytes:
    """The public key in a certificate."""
    return _read(path).public


def read_secret(path: Path) -> Pair:
    """A pair; MetadataError if the file is not this user's alone or has no secret key."""
    pair = _read(path, secret=True)
    if not pair.secret:
        raise MetadataError(f"{path} holds no secret key: name the {SECRET_SUFFIX} file that `tensord keygen` wrote")
    if zmq.curve_public(pair.secret) != pair.public:
        raise MetadataError(f"{path}: the public key is not that of the secret one; make a new pair: tensord keygen")
    return pair


def _read(path: Path, *, secret: bool = False) -> Pair:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if secret and mode & 0o077:
                raise MetadataError(f"{path} may be read by others (mode {mode & 0o7777:04o}): run chmod 600 {path}")
            lines = file.read(1 << 16).splitlines()
    except OSError as error:
        raise MetadataError(f"{path}: {error.strerror}. `tensord keygen` makes key files") from None
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b"=")
        fields.setdefault(name.strip(), value.strip().strip(b"\"'"))
    public, private = fields.get(b"public-key", b""), fields.get(b"secret-key", b"")
    if not is_key(public) or (private and not is_key(private)):
        raise MetadataError(f"{path} is not a key file: `tensord keygen` makes key files")
    return Pair(public, private)


def is_key(text: bytes) -> bool:
    """Whether the text is a key in Z85."""
    return _KEY.fullmatch(text) is not None
