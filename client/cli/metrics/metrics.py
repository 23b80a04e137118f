"""`tensord metrics`: a process besides the daemon, which Prometheus scrapes."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ....interpreter.errors import MetadataError
from ....interpreter.metrics.bounds import Bounds
from ....interpreter.metrics.endpoint import USUAL_ENDPOINT, Endpoint, read_token
from ..line import options

if TYPE_CHECKING:
    import socket

    from .scrapes import MetricsSource

EXTRA: Final = 'prometheus-client is not installed: pip install "tensord[metrics]"'
DEFAULT_BOUNDS: Final = Bounds()


@click.command()
@options.address
@click.option(
    "--listen", metavar="ADDRESS", default=USUAL_ENDPOINT, help="HOST:PORT, or unix:PATH for this user alone."
)
@click.option("--token", type=options.FILE, help="A file with the token that scrapers must send.")
@click.option(
    "--ops", type=click.IntRange(0, 1000), default=DEFAULT_BOUNDS.ops, help="How many ops have a label of their own."
)
@click.option(
    "--sessions",
    type=click.IntRange(0, 1000),
    default=DEFAULT_BOUNDS.sessions,
    help="How many sessions have labels of their own.",
)
@click.option("--once", is_flag=True, help="Print the metrics and exit.")
@click.option("--until-stdin-ends", is_flag=True, hidden=True)
def metrics(
    address: str | None, listen: str, token: Path | None, ops: int, sessions: int, *, once: bool, until_stdin_ends: bool
) -> None:
    """Serve the daemon's metrics to Prometheus, until SIGTERM or Ctrl-C.

    Serves /metrics and /healthz. While the daemon does not answer, tensord_up is 0; it is asked at most once a second.
    Beyond this machine it listens only with --token.

    Example: tensord metrics
    Example: tensord metrics --listen 0.0.0.0:9464 --token ~/.config/tensord/metrics.token
    Example: tensord metrics --once | grep session_bytes
    """
    endpoint = Endpoint.of(listen)
    endpoint.require(token)
    secret = None if token is None else read_token(token)
    if find_spec("prometheus_client") is None:
        raise MetadataError(EXTRA)
    from .daemon_figures import DaemonFigures

    source = DaemonFigures(address, Bounds(ops, sessions), tell)
    try:
        if once:
            print_metrics(source)
        else:
            offer(endpoint, source, secret, watch=until_stdin_ends)
    finally:
        source.close()


def tell(line: str) -> None:
    """Print a line for the operator, or for the daemon's log."""
    sys.stderr.write(f"tensord metrics: {line}\n")
    sys.stderr.flush()


def print_metrics(source: MetricsSource) -> None:
    from .exposition import exposition

    figures = source.figures()
    click.echo(exposition(figures, "")[1], nl=False)
    if not figures.machine:
        raise click.exceptions.Exit(1)


def offer(endpoint: Endpoint, source: MetricsSource, token: str | None, *, watch: bool) -> None:
    """Serve until a signal, or with `watch` the end of stdin, ends it."""
    import asyncio

    from .server import listen

    with listen(endpoint) as listening:
        tell(f"serving http://{shown(endpoint, listening)}/metrics")
        try:
            asyncio.run(serve_until_told(listening, source, token, watch=watch))
        finally:
            if endpoint.path:
                Path(endpoint.path).unlink(missing_ok=True)


async def serve_until_told(listening: socket.socket, source: MetricsSource, token: str | None, *, watch: bool) -> None:
    import asyncio
    import signal
    from contextlib import suppress

    from .exposition import exposition
    from .pages import Pages
    from .scrapes import Scrapes
    from .server import serve

    loop, scrapes = asyncio.get_running_loop(), Scrapes(source, exposition)
    serving = asyncio.create_task(serve(listening, Pages(scrapes, token).answer))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    if watch:
        loop.add_reader(sys.stdin, lambda: os.read(sys.stdin.fileno(), 1) or serving.cancel())
    with suppress(asyncio.CancelledError):
        await serving
    scrapes.close()


def shown(endpoint: Endpoint, listening: socket.socket) -> str:
    """The endpoint with its port."""
    return endpoint.text if endpoint.path else f"{endpoint.text.rpartition(':')[0]}:{listening.getsockname()[1]}"
