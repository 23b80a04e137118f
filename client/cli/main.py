"""The command line: `tensord`.

Errors are one line on stderr that says what to do, and exit code 1; with --json an object with "error" on stdout. Never
a traceback, unless TENSORD_DEBUG is set. Start-up is part of the experience, so commands import what they need late.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from ...interpreter.errors import TensordError
from . import admin, doctor, keygen, ops, serve, top, trace

app = typer.Typer(
    name="tensord",
    help="One owner for the tensors and devices of a machine.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
serve.add(app)
admin.add(app)
top.add(app)
app.add_typer(trace.app, name="trace")
ops.add(app)
doctor.add(app)
keygen.add(app)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point; `arguments` are those of the process by default. Leaves by SystemExit."""
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="tensord", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` perhaps, has what it wanted. Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        if os.environ.get("TENSORD_DEBUG"):
            raise
        _tell(_explained(error), as_json="--json" in (sys.argv if arguments is None else arguments))
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _tell(message: str, *, as_json: bool) -> None:
    """Where the output is for programs, so is the error."""
    try:
        typer.echo(json.dumps({"error": message}) if as_json else f"tensord: {message}", err=not as_json)
        sys.stdout.flush()
    except OSError:  # what could not be written was stdout itself
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"tensord {installed('tensord')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _explained(error: Exception) -> str:
    """One line: what happened and what to do."""
    # Errors of usage come from click, which newer versions of typer bring along under a name of their own.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        message = f"{_without_echo(usage()).rstrip('.')}. Try --help."
    elif isinstance(error, TensordError):
        message = error.message  # the location would be a line of ours
    elif isinstance(error, OSError) and error.strerror is not None:
        what_to_do = "Make room" if error.errno in _FULL else "Check the path and its permissions"
        message = f"{error.filename or 'the output'}: {error.strerror}. {what_to_do}."
    else:
        message = f"internal error, {type(error).__name__}: {error}. TENSORD_DEBUG=1 shows where; please report it."
    return " ".join(message.split())


def _without_echo(message: str) -> str:
    """What validators say twice, once: "Invalid value for X: Value error, ..." and "..., unable to parse ..."."""
    head, colon, reason = message.partition(": ")
    return f"{head}{colon}{reason.removeprefix('Value error, ').partition(', unable to parse')[0]}"
