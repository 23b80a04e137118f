"""`tensord serve`: run the daemon. Settings beyond these options are in deploy/tensord.toml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("serve")(serve)


def serve(
    *,
    address: Annotated[
        list[str] | None,
        typer.Option(help="Where to listen: ipc:///PATH or tcp://HOST:PORT; may be repeated.", show_default=False),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="A device, such as cpu:0; may be repeated.", show_default=False)
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration file; options override it.")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.", show_default=False)
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="console or json.", show_default=False)
    ] = None,
    grace: Annotated[
        float | None, typer.Option(help="Seconds for pending work to end at shutdown.", show_default=False)
    ] = None,
    no_tracing: Annotated[bool, typer.Option("--no-tracing", help="Keep no trace.")] = False,
    check_config: Annotated[
        bool,
        typer.Option("--check-config", help="Check whether a daemon could start, print the final settings, and exit."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --check-config: JSON.")] = False,
) -> None:
    """Run the daemon, until SIGTERM or Ctrl-C: one owner for the devices and tensors of many processes."""
    from ...vm.service.config import load

    log = {"level": log_level, "format": log_format}
    given: dict[str, Any] = {"addresses": address, "devices": device, "grace": grace}
    given["log"] = {name: value for name, value in log.items() if value is not None}
    given["trace"] = {"on": False} if no_tracing else {}
    if as_json and not check_config:
        raise typer.BadParameter("--json is for --check-config: a daemon's log is JSON with --log-format json")
    found = load(config, {name: value for name, value in given.items() if value not in (None, [], {})})
    if check_config:
        from ...vm.service.config_text import to_plain, to_toml
        from ...vm.service.preflight import check, doubts

        check(found)
        for doubt in doubts(found):
            typer.echo(f"tensord: warning: {doubt}", err=True)
        typer.echo(json.dumps(to_plain(found)) if as_json else to_toml(found), nl=as_json)
        return
    from ...vm.service.daemon import run

    if code := run(found):
        raise typer.Exit(code)
