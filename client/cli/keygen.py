"""`tensord keygen`: write a pair of keys for tcp, and say where each key belongs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

SERVER = "server"


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("keygen")(keygen)


def keygen(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory for the keys.", show_default=False)],
    *,
    name: Annotated[str, typer.Option(help=f'Whose keys: "{SERVER}" for the daemon, else a client.')] = SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout.")] = False,
) -> None:
    """Make a pair of keys for tcp: NAME.key, which is public, and NAME.key_secret, which must stay secret."""
    from ...interpreter.wire.keys import create, read_public

    public, secret = create(directory.expanduser().absolute(), name)
    key = read_public(public).decode()
    if as_json:
        typer.echo(json.dumps({"name": name, "public": str(public), "secret": str(secret), "key": key}))
        return
    typer.echo(f"public key: {public}\nsecret key: {secret} (mode 0600; never copy it)\n")
    typer.echo(_for_server(public, secret) if name == SERVER else _for_client(name, key, secret))


def _for_server(public: Path, secret: Path) -> str:
    quoted = json.dumps(str(secret)), json.dumps(str(secret.with_name("allowed_clients")))
    return (
        "In the daemon's configuration file:\n\n"
        f"    [security]\n    server_secret = {quoted[0]}\n    allow = {quoted[1]}\n\n"
        f"Clients need a copy of {public.name} beside their own keys, and a line each in {quoted[1]}."
    )


def _for_client(name: str, key: str, secret: Path) -> str:
    return (
        f"The daemon's allow list ([security] allow) needs this line:\n\n    {key} {name}\n\n"
        f"The client needs the daemon's {SERVER}.key in {secret.parent}, and:\n\n    export TENSORD_KEYS={secret}"
    )
