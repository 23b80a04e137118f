"""The output of a command: to stdout, for people or with --json for programs, or whole into a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .options import FILE, JSON

output = click.option("-o", "--output", type=FILE, help="Write here instead of to stdout.")


def write(content: str | bytes, output: Path | None) -> None:
    """Write to the file, or to stdout. OSError if that fails; a file is then as it was before."""
    from ....interpreter.whole_file import write_whole

    if output is not None:
        write_whole(output, content)
    elif isinstance(content, bytes):
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content)


def tell(found: Any, show: Callable[[Any], object]) -> None:
    """Print what was found: with --json as it is, otherwise as `show` does."""
    if in_json():
        print_json(found)
    else:
        show(found)


def in_json() -> bool:
    """Has the command that runs been given --json?"""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON))


def print_json(value: object) -> None:
    """Print the value as JSON, on one line."""
    print(json.dumps(value, default=str))  # noqa: T201
