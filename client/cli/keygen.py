"""`tensord keygen`: writes a pair of keys for tcp, and says where each key belongs."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...interpreter.whole_file import write_whole
from .line import options
from .line.options import in_json, print_json

SERVER = "server"


@click.command()
@click.argument("directory", type=options.FILE, metavar="DIR", help="The directory for the keys.")
@click.option("--name", default=SERVER, help=f'Whose keys: "{SERVER}" for the daemon, else a client.')
@click.option(
    "--allow",
    type=options.FILE,
    metavar="FILE",
    help="Append the client's key to this allow list of the daemon. Existing keys are used.",
)
@options.as_json
def keygen(directory: Path, *, name: str, allow: Path | None) -> None:
    """Make a key pair for encrypted tcp: NAME.key (public) and NAME.key_secret, which must stay secret.

    Example: tensord keygen ~/keys --name alice --allow ~/keys/allowed_clients
    """
    from ...interpreter.wire.keys import create, paths, read_public

    where = directory.expanduser().absolute()
    listed = None if allow is None else allow.expanduser().absolute()
    if listed is not None:
        _check_list(listed, name)
    public, secret = paths(where, name)
    if listed is None or not public.exists():
        create(where, name)
    key = read_public(public).decode()
    added = listed is not None and _append(listed, key, name)
    if in_json():
        answer = {"name": name, "public": str(public), "secret": str(secret), "key": key}
        about = {} if listed is None else {"allow": str(listed), "added": added}
        print_json(answer | about)
        return
    click.echo(f"public key: {public}\nsecret key: {secret} (mode 0600; never copy it)")
    if listed is not None:
        click.echo(f"allow list: {listed}, {'which has the key now' if added else 'which had the key already'}")
    click.echo()
    click.echo(_for_server(public, secret) if name == SERVER else _for_client(name, key, secret, listed=bool(listed)))


def _check_list(file: Path, name: str) -> None:
    """MetadataError unless a client's key can be added to the allow list."""
    from ...interpreter.errors import MetadataError

    if name == SERVER:
        raise MetadataError(f"--allow is for a client's key: give a --name other than {SERVER!r}")
    if file.exists() and file.stat().st_mode & 0o022:
        raise MetadataError(f"{file}: others may write it, so the daemon will not read it: run chmod 600 {file}")


def _append(file: Path, key: str, name: str) -> bool:
    """Append a line to the allow list, which is made with mode 0600; False if the key is there already."""
    with _alone_in(file.parent):
        content = file.read_bytes() if file.exists() else b""
        if any(line.split(b" ", 1)[0] == key.encode() for line in content.splitlines()):
            return False
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
        begin = b"" if not content or content.endswith(b"\n") else b"\n"
        write_whole(file, content + begin + f"{key} {name}\n".encode(), mode=mode)
    return True


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold the lock under which our commands change the lists in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _for_server(public: Path, secret: Path) -> str:
    quoted = json.dumps(str(secret)), json.dumps(str(secret.with_name("allowed_clients")))
    return (
        "In the daemon's configuration file:\n\n"
        f"    [security]\n    server_secret = {quoted[0]}\n    allow = {quoted[1]}\n\n"
        f"Clients need a copy of {public.name} beside their own keys, and a line each in {quoted[1]}."
    )


def _for_client(name: str, key: str, secret: Path, *, listed: bool) -> str:
    line = "" if listed else f"The daemon's allow list ([security] allow) needs this line:\n\n    {key} {name}\n\n"
    return (
        f"{line}The client needs the daemon's {SERVER}.key in {secret.parent}, and:\n\n    export TENSORD_KEYS={secret}"
    )
