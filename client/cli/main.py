"""The command line: `tensord`.

An error is one line on stderr that says what to do, or with --json an object with "error" on stdout; the exit status is
1, or 2 if the command line itself is wrong. A traceback appears only if TENSORD_DEBUG is set.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from ...interpreter.errors import TensordError
from .application import application

COMPLETION = "_TENSORD_COMPLETE"  # set by a shell to complete a line
FAILURE, USAGE = 1, 2  # as exit statuses
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; `arguments` default to those of the process. Always raises SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    try:
        code = application(given, prog_name="tensord", complete_var=COMPLETION, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, perhaps `head`, has closed the pipe. Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except Exception as error:
        if os.environ.get("TENSORD_DEBUG"):
            raise
        _tell(_explained(error), as_json="--json" in given)
        sys.exit(USAGE if isinstance(error, click.UsageError) else FAILURE)
    sys.exit(code if isinstance(code, int) else 0)


def _tell(message: str, *, as_json: bool) -> None:
    """Print the error to stderr, or with `as_json` as an object to stdout."""
    try:
        if as_json:
            sys.stdout.write(json.dumps({"error": message}) + "\n")
        else:
            sys.stderr.write(f"tensord: {message}\n")
        sys.stdout.flush()
    except OSError:  # stdout itself cannot be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Exception) -> str:
    """The error on one line: what happened and what to do."""
    if isinstance(error, click.ClickException):  # wrong usage
        said = error.format_message().rstrip(".")
        message = f"{said}{'' if said.endswith('?') else '.'} Try --help."
    elif isinstance(error, TensordError):
        message = error.message  # without the location, which would be a line of this package
    elif isinstance(error, OSError) and error.strerror is not None:
        what_to_do = "Make room" if error.errno in _FULL else "Check the path and its permissions"
        message = f"{error.filename or 'the output'}: {error.strerror}. {what_to_do}."
    else:
        message = f"internal error, {type(error).__name__}: {error}. TENSORD_DEBUG=1 shows where; please report it."
    return " ".join(message.split())


def open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that the caller has closed, for which Python has None.

    Launchers and start scripts close them. The next file or socket that is opened would get the number of a closed
    stream, and output of libraries to stderr would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is the stream's
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8", closefd=False))
