"""`tensord plugins`: the other packages from which a daemon has ops and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import click

from ..drawing.figures import plural
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import tell
from .ask import ask
from .nodes import on_all_nodes


@click.command()
@options.address
@on_all_nodes
@click.option(
    "--installed",
    is_flag=True,
    help="List the plugins installed in this Python that a daemon could load; asks no daemon.",
)
@options.as_json
def plugins(address: str | None, *, installed: bool) -> None:
    """List the plugins that the daemon has loaded, or those installed here.

    Example: tensord plugins --installed
    """
    if installed:
        from ....vm.plugins.installed import installed as found

        tell(found(), show_installed)
    else:
        tell(ask(address, "plugins"), show_loaded)


COLUMNS: Final = (
    Column("name", itemgetter("name")),
    Column("version", itemgetter("version")),
    Column("devices", lambda one: ", ".join(one["devices"]), folds=True),
    Column("ops", lambda one: ", ".join(one["ops"]), folds=True),
    Column("from", lambda one: one.get("location", ""), folds=True),
)


def show_loaded(loaded: Sequence[Mapping[str, Any]]) -> None:
    nothing = 'the daemon has no plugins; its configuration names them: plugins = ["PACKAGE"] (docs/plugins.md)'
    print_table(COLUMNS, loaded, caption=plural(len(loaded), "plugin"), empty=nothing)


def show_installed(packages: Sequence[Mapping[str, Any]]) -> None:
    nothing = "no package with an entry point in tensord.devices or tensord.ops is installed for this Python"
    caption = (
        f'{plural(len(packages), "package")}; the settings of a daemon name those that it loads: plugins = ["PACKAGE"]'
    )
    print_table(COLUMNS, packages, caption=caption, empty=nothing)
