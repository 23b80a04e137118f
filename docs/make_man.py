"""Writes the manual page tensord(1) from the help of the commands: `make man`, or

.venv/bin/python docs/make_man.py > tensord.1
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from tensord import __version__
from tensord.client.cli.application import application
from tensord.client.cli.line.commands import AS_WRITTEN, EXAMPLES

FILES = """
.SH ENVIRONMENT
.TP
.B TENSORD_ADDRESS
The address of the daemon, for every command and for connect().
.TP
.B TENSORD_KEYS
The client's secret key file, or its directory, for tcp with keys.
.TP
.B XDG_RUNTIME_DIR
Where the default socket lies, in the directory tensord.
.TP
.B TENSORD_DEBUG
Show tracebacks instead of one line.
.SH EXIT STATUS
.TP
.B 0
The command has done what it says.
.TP
.B 1
It has not. status \\-\\-check: the daemon needs a look.
.TP
.B 2
The command line is wrong. status \\-\\-check: the daemon cannot be reached.
.TP
.B 130
It was interrupted.
"""


def page() -> str:
    """The whole page, as troff's man macros."""
    root = click.Context(application, info_name="tensord", **application.context_settings)
    head = [
        f'.TH TENSORD 1 "" "tensord {__version__}" "User Commands"',
        ".SH NAME",
        f"tensord \\- {plain(application.help or '')}",
        ".SH SYNOPSIS",
        ".B tensord",
        plain("COMMAND [OPTIONS]"),
        ".SH COMMANDS",
    ]
    return "\n".join([*head, *(line for one in described(root) for line in one)]) + FILES


def described(context: click.Context) -> Iterator[list[str]]:
    """The commands of a group, and those of its groups, each as lines."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            raise LookupError(name)
        inner = click.Context(command, parent=context, info_name=name)
        yield list(command_lines(inner))
        yield from described(inner)


def command_lines(context: click.Context) -> Iterator[str]:
    """One command: its synopsis, its description, its options."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f".SS {plain(usage)}"
    text, _, examples = (command.help or "").replace(AS_WRITTEN, "").partition(EXAMPLES)
    for paragraph in text.split("\n\n"):
        yield from (".PP", plain(" ".join(paragraph.split())))
    for example in ("Example:" + examples).splitlines() if examples else ():
        yield from (".PP", plain(example))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {plain(record[0])}", plain(record[1]))


def plain(text: str) -> str:
    """Text that troff takes as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.stdout.write(page())
