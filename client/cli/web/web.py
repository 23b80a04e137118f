"""`tensord web`: a process besides the daemon, with a page that shows the daemon at work; or a page of a trace."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import webbrowser
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ....interpreter.errors import MetadataError
from ....interpreter.metrics.endpoint import read_token
from ..line import options
from ..line.options import in_json, print_json

if TYPE_CHECKING:
    from .source import ViewSource

EXTRA: Final = 'aiohttp is not installed: pip install "tensord[web]"'
DEFAULT_HOST: Final = "127.0.0.1"
PORT: Final = 9465


@click.command()
@click.argument("file", type=options.FILE, required=False, help="A saved trace; without it, the running daemon.")
@options.address
@click.option("--host", default=DEFAULT_HOST, help="The address or name to listen on; 0.0.0.0 for all of this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, help="The port; 0 takes a free one.")
@click.option("--token-file", type=options.FILE, help="A file with the token; without it, a new one is made.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@options.json_flag("For programs: one line of JSON on stdout, with the address and the token.")
def web(file: Path | None, *, address: str | None, host: str, port: int, token_file: Path | None, opens: bool) -> None:
    """Show the work of the daemon, or a trace, on a web page, until SIGTERM or Ctrl-C.

    Everybody with the printed URL can view the page; the page cannot change anything. The daemon is asked only while a
    page is open.

    Example: tensord web --open
    Example: tensord web run.trace
    Example: tensord web --host 0.0.0.0 --token-file ~/.config/tensord/web.token
    """
    token = secrets.token_urlsafe(24) if token_file is None else read_token(token_file)
    if find_spec("aiohttp") is None:
        raise MetadataError(EXTRA)
    source = source_of(file, address)
    try:
        with listen(host, port) as listening:
            offer(source, listening, host, token, opens=opens)
    finally:
        source.rest()


def source_of(file: Path | None, address: str | None) -> ViewSource:
    """The source to show. Raises for a file that is no trace, and if no daemon runs, or one without a trace."""
    if file is not None:
        from .opened import OpenedTrace

        opened = OpenedTrace(file)
        if opened.note:
            click.echo(f"tensord web: {opened.note}", err=True)
        return opened
    from .watched import WatchedDaemon

    watched = WatchedDaemon(address)
    watched.greet()
    watched.rest()  # no page is open yet
    return watched


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; MetadataError if that is impossible."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        what = f"{shown(host)}:{port}: {error.strerror or error}"
        raise MetadataError(f"cannot listen on {what}; --port 0 takes a free port") from None


def shown(host: str) -> str:
    """The host in an address that a browser opens."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - not listened on, but compared with
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def announce(where: str, token: str, *, opens: bool) -> None:
    url = f"{where}?token={token}"
    if in_json():
        print_json({"address": where, "token": token, "url": url})
    else:
        click.echo(f"open {url}\nCtrl-C ends it")
    sys.stdout.flush()
    if opens:
        webbrowser.open(url)


def offer(source: ViewSource, listening: socket.socket, host: str, token: str, *, opens: bool) -> None:
    from .access import Access
    from .files import pages
    from .serving import Server, until_told

    port = listening.getsockname()[1]
    server = partial(Server, source, Access(token, host, f"tensord_web_{port}"), pages())
    announce(f"http://{shown(host)}:{port}/", token, opens=opens)

    async def serve() -> None:
        await until_told(server(), listening)

    asyncio.run(serve())
