"""The output of a command: to stdout, as text or JSON, or whole into a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from .options import FILE

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


def print_json(value: object) -> None:
    """Print the value as JSON, on one line."""
    print(json.dumps(value, default=str))  # noqa: T201
