"""The command line: `tensord`.

An error is one line on stderr that says what to do, or with --json an object with "error" on stdout; the exit code is
1. A traceback appears only if TENSORD_DEBUG is set. The parser and the called command are imported late: start-up is to
be fast.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ... import __version__
from ...interpreter.errors import TensordError
from .commands import light

COMPLETION = "_TENSORD_COMPLETE"  # set by a shell that wants to complete a line
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; `arguments` default to those of the process. Always raises SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:  # needs no parser
        sys.stdout.write(f"tensord {__version__}\n")
        sys.exit(0)
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, perhaps `head`, has closed the pipe. Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("TENSORD_DEBUG"):
            raise
        _tell(_explained(error), as_json="--json" in given)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _run(given: Sequence[str]) -> object:
    """Do what is asked for, with the parser only if it is needed; returns the exit code, if it is an int."""
    at_once = light(given) if COMPLETION not in os.environ else None
    if at_once is not None:
        return at_once()
    import typer

    from .application import application

    try:
        return application(given)(args=given, prog_name="tensord", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None


def _tell(message: str, *, as_json: bool) -> None:
    """Print the error: on stderr, or with `as_json` as an object on stdout."""
    try:
        if as_json:
            sys.stdout.write(json.dumps({"error": message}) + "\n")
        else:
            sys.stderr.write(f"tensord: {message}\n")
        sys.stdout.flush()
    except OSError:  # stdout itself cannot be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Exception) -> str:
    """The error as one line: what happened and what to do."""
    # Usage errors come from click, which newer versions of typer bundle under another name.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        said = _without_echo(usage()).rstrip(".")
        said = said.removesuffix("?.") + "?" if said.endswith("?.") else said
        message = f"{said}{'' if said.endswith('?') else '.'} Try --help."
    elif isinstance(error, TensordError):
        message = error.message  # the location would be a line of this package
    elif isinstance(error, OSError) and error.strerror is not None:
        what_to_do = "Make room" if error.errno in _FULL else "Check the path and its permissions"
        message = f"{error.filename or 'the output'}: {error.strerror}. {what_to_do}."
    else:
        message = f"internal error, {type(error).__name__}: {error}. TENSORD_DEBUG=1 shows where; please report it."
    return " ".join(message.split())


def _without_echo(message: str) -> str:
    """The message without its repetitions: "Invalid value for X: Value error, ..." and "..., unable to parse ..."."""
    head, colon, reason = message.partition(": ")
    return f"{head}{colon}{reason.removeprefix('Value error, ').partition(', unable to parse')[0]}"
