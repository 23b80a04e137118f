"""Options of many commands, and their output: to stdout, for people or with --json for programs, or to a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

JSON: Final = "tensord.json"  # in a context's `meta`: --json was given
COLLECTED: Final = (
    "tensord.collected"  # in a context's `meta`: results to print as JSON, by the command that collects them
)
FILE: Final = click.Path(path_type=Path)  # the type of a path of a file or directory

address: Final = click.option(
    "--address",
    envvar="TENSORD_ADDRESS",
    show_envvar=True,
    help="The daemon's address. Default: the running daemon.",
)


def json_flag(described: str) -> Callable[..., Any]:
    """The flag --json, which commands do not get as a parameter: `in_json` asks the context."""
    return click.option("--json", is_flag=True, expose_value=False, callback=_noted, help=described)


def _noted(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[JSON] = value


as_json: Final = json_flag("Print JSON on stdout.")

wait: Final = click.option(
    "--wait", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="How long to wait for a daemon to listen."
)


def rows(default: int) -> Callable[..., Any]:
    """The number of rows of each table."""
    described = "The largest number of rows of each table; 0 for all."
    return click.option("--limit", type=click.IntRange(min=0), default=default, help=described)


output = click.option("-o", "--output", type=FILE, help="Write to this file instead of stdout.")


def write(content: str | bytes, output: Path | None) -> None:
    """Write to the file, or to stdout. If that raises OSError, the file is unchanged."""
    from ....interpreter.whole_file import write_whole

    if output is not None:
        write_whole(output, content)
    elif isinstance(content, bytes):
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content)


def tell(result: Any, show: Callable[[Any], object]) -> None:
    """Print the result: as JSON with --json, else by `show`."""
    if in_json():
        print_json(result)
    else:
        show(result)


def in_json() -> bool:
    """Return whether the running command was given --json."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON))


def print_json(value: object) -> None:
    context = click.get_current_context(silent=True)
    collected = None if context is None else context.meta.get(COLLECTED)
    if collected is not None:
        collected.append(value)
        return
    print(json.dumps(value, default=str))  # noqa: T201
