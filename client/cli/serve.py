"""`tensord serve`: run the daemon. Settings beyond these options are in deploy/tensord.toml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .line import options

if TYPE_CHECKING:
    from ...vm.service.settings.config import Config


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
def serve(*, config: Path | None, check_config: bool, as_json: bool, **given: Any) -> None:
    """Run the daemon, until SIGTERM or Ctrl-C: it owns the devices and tensors of many processes."""
    from ...vm.service.process.errors import CommandLineError
    from ...vm.service.settings.config import load

    if as_json and not check_config:
        raise click.BadParameter("--json is for --check-config: a daemon's log is JSON with --log-format json")
    try:
        settings = load(config, settings_of(given))
    except CommandLineError as error:
        raise click.UsageError(error.message) from error
    if check_config:
        show_config(settings, as_json)
        return
    from ...vm.service.daemon import run

    if code := run(settings):
        raise click.exceptions.Exit(code)


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, named and nested as in a configuration file."""
    restore = given["restore"]
    settings: dict[str, Any] = {
        "addresses": list(given["address"]),
        "devices": list(given["device"]),
        "plugins": list(given["plugin"]),
        "grace": given["grace"],
        "node": given["node"],
        "log": without_none(level=given["log_level"], format=given["log_format"]),
        "cluster": without_none(**{name: given[name] for name in ("incarnation", "values", "encryption")}),
        "trace": {"on": False} if given["no_tracing"] else {},
        "restore": None if restore is None else str(restore),
        "restore_strict": given["strict"] or None,
    }
    return {name: value for name, value in settings.items() if value not in (None, [], {})}


def without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def show_config(settings: Config, as_json: bool) -> None:
    """Check whether a daemon with these settings could start, and print them."""
    from ...vm.plugins.loading import load
    from ...vm.service.preflight import check, start_warnings
    from ...vm.service.settings.config import to_plain, to_toml

    check(settings)
    for plugin in load(settings.plugins):
        click.echo(f"tensord: plugin {plugin}", err=True)
    for doubt in start_warnings(settings):
        click.echo(f"tensord: warning: {doubt}", err=True)
    click.echo(json.dumps(to_plain(settings)) if as_json else to_toml(settings), nl=as_json)
