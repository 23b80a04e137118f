"""`tensord serve`: run the daemon. Settings beyond these options are in deploy/tensord.toml."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .line import options


@click.command()
@click.option("--address", multiple=True, help="Listen at ipc:///PATH or tcp://HOST:PORT; may be given several times.")
@click.option("--device", multiple=True, help="A device, such as cpu:0; may be given several times.")
@click.option(
    "--plugin",
    multiple=True,
    metavar="PACKAGE",
    help="A package that defines ops or devices; may be given several times.",
)
@click.option("--node", metavar="NAME", help="The name of this machine among several (docs/cluster.md).")
@click.option("--incarnation", type=int, help="With --node: a number that must grow with each start.")
@click.option("--values", metavar="HOST:PORT", help="With --node: the address that receives values from other nodes.")
@click.option("--encryption", metavar="KIND", help="With --node: the encryption between daemons, tls or none.")
@click.option("--config", type=options.FILE, help="A configuration file; options override its values.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-format", metavar="FORMAT", help="console or json.")
@click.option("--grace", type=float, help="Seconds for pending work to end at shutdown.")
@click.option("--restore", type=options.FILE, help="Publish the names of the last checkpoint in this directory.")
@click.option("--strict", is_flag=True, help="With --restore: do not start if any of the checkpoint is damaged.")
@click.option("--no-tracing", is_flag=True, help="Keep no trace.")
@click.option(
    "--check-config", is_flag=True, help="Check whether a daemon could start, print the effective settings, and exit."
)
@click.option("--json", "as_json", is_flag=True, help="With --check-config: print JSON.")
def serve(
    *,
    address: Sequence[str],
    device: Sequence[str],
    plugin: Sequence[str],
    node: str | None,
    incarnation: int | None,
    values: str | None,
    encryption: str | None,
    config: Path | None,
    log_level: str | None,
    log_format: str | None,
    grace: float | None,
    restore: Path | None,
    strict: bool,
    no_tracing: bool,
    check_config: bool,
    as_json: bool,
) -> None:
    """Run the daemon, until SIGTERM or Ctrl-C: it owns the devices and tensors of many processes."""
    from ...vm.service.settings.config import load as load_config

    log = {"level": log_level, "format": log_format}
    cluster = {"incarnation": incarnation, "values": values, "encryption": encryption}
    given: dict[str, Any] = {
        "addresses": list(address),
        "devices": list(device),
        "plugins": list(plugin),
        "grace": grace,
        "node": node,
        "log": {name: value for name, value in log.items() if value is not None},
        "cluster": {name: value for name, value in cluster.items() if value is not None},
        "trace": {"on": False} if no_tracing else {},
        "restore": None if restore is None else str(restore),
        "restore_strict": strict or None,
    }
    if as_json and not check_config:
        raise click.BadParameter("--json is for --check-config: a daemon's log is JSON with --log-format json")
    found = load_config(config, {name: value for name, value in given.items() if value not in (None, [], {})})
    if check_config:
        from ...vm.plugins.loading import load
        from ...vm.service.preflight import check, doubts
        from ...vm.service.settings.config import to_plain, to_toml

        check(found)
        for one in load(found.plugins):
            click.echo(f"tensord: plugin {one}", err=True)
        for doubt in doubts(found):
            click.echo(f"tensord: warning: {doubt}", err=True)
        click.echo(json.dumps(to_plain(found)) if as_json else to_toml(found), nl=as_json)
        return
    from ...vm.service.daemon import run

    if code := run(found):
        raise click.exceptions.Exit(code)
