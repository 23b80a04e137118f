"""Light commands start fast, since they import only the modules they need; shells complete them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tensord.client.cli.application import application
from tensord.client.cli.line.commands import Commands
from tensord.interpreter.op_descriptions import make_table

from ...daemon import Daemon
from ...each_case import each_case

NEVER = (
    "numpy",
    "rich",
    "structlog",
    "asyncio",
    "pydantic",
    "tensord.client.session.session",
)  # modules that are slow to import
HEAVY = (*NEVER, "zmq", "msgpack", "ctypes")
PROGRAM = """
import json, sys
from tensord.client.cli.main import main
known, told = set(), []
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as left:
        told.append([left.code, *sys.modules.keys() - known])
    known = set(sys.modules)
print(json.dumps(told), file=sys.stderr)
"""


def imported(
    *lines: str, address: str = "", status: int = 0, folder: Path | None = None, first: str = ""
) -> list[set[str]]:
    """The modules that command lines import, one after the other in one process; each ends with that status.

    A module counts only for the first command line that imports it. `first`: statements before them.
    """
    command = [sys.executable, "-c", first + PROGRAM, *lines]
    there = os.environ | {"TENSORD_ADDRESS": address}
    done = subprocess.run(  # noqa: S603
        command, env=there, cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    told = json.loads(done.stderr.splitlines()[-1])
    assert [code for code, *_ in told] == [status] * len(lines), done.stderr
    return [set(modules) for _, *modules in told]


def assert_light(lines: tuple[str, ...], never: tuple[str, ...], **options: Any) -> None:
    """None of the command lines imports one of those modules."""
    found = imported(*lines, **options)
    assert [modules.intersection(never) for modules in found] == [set()] * len(lines)


@each_case(
    ("line", "more"),
    [
        ("--version", ("tensord.client.cli.daemon.admin",)),
        ("--help", ("tensord.client.cli.daemon.admin", "tensord.client.cli.traces.trace")),
        ("keygen --help", ("tensord.client.cli.daemon.admin", "tensord.client.cli.traces.trace")),
        ("status --help", ("tensord.client.cli.traces.trace",)),
        ("trace --help", ("tensord.client.cli.traces.dag",)),
        ("trace dag --help", ("tensord.client.cli.traces.memory",)),
        ("run --help", ("tensord.client.cli.daemon.admin",)),
    ],
)
def test_a_light_command_imports_nothing_that_it_does_not_need(line: str, more: tuple[str, ...]) -> None:
    assert_light((line,), (*HEAVY, *more))


def test_a_question_about_ops_needs_neither_their_kernels_nor_a_daemon_where_a_build_has_described_them(
    tmp_path: Path,
) -> None:
    table = tmp_path / "ops.json"
    table.write_text(make_table())
    assert_light(
        ("ops --help", "ops", "ops matmul", "ops --json"),
        (*NEVER, "zmq", "tensord.vm", "tensord.streams", "tensord.interpreter.ops"),
        first="import pathlib, tensord.interpreter.op_descriptions as d\n"
        f"d.TABLE_FILE = pathlib.Path({str(table)!r})\n",
    )


def test_a_question_to_a_daemon_needs_neither_numpy_nor_a_session(daemon: Daemon) -> None:
    questions = (
        "status",
        "sessions --json",
        "devices",
        "tensors",
        "tensors --limit 3 --device cpu:0 --json",
        "evict --device cpu:0",
        "top --once --interval 0.1",
    )
    assert_light(questions, (*NEVER, "hashlib"), address=daemon.address)


def test_that_there_is_no_daemon_is_said_without_a_session(tmp_path: Path) -> None:
    commands = ("top", "checkpoint c", "restore c", "trace record -o x.trace")
    assert_light(commands, NEVER, address=f"ipc://{tmp_path}/socket", status=1)


def test_the_trace_of_a_daemon_is_read_without_numpy(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.connect() as session:
        session.asarray(1.0).numpy()
        newest = session.trace().records[-1].id
        commands = (
            "trace show --limit 3",
            "trace stats",
            "trace memory --by op",
            "trace verify",
            f"trace why {newest}",
            "trace dag --format html --fold-by line",
            "trace timeline",
            "trace dump -o x.trace",
        )
        assert_light(commands, NEVER, address=daemon.address, folder=tmp_path)


def groups(group: Commands = application) -> Iterator[Commands]:
    """The group and its commands."""
    yield group
    for name in group.table:
        command = group.get_command(click.Context(group), name)
        if isinstance(command, Commands):
            yield from groups(command)


@pytest.mark.parametrize("group", list(groups()), ids=lambda group: group.name)
def test_every_command_is_found_in_its_module_and_begins_with_its_summary(group: Commands) -> None:
    context = click.Context(group)
    for name, (module, summary) in group.table.items():
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help is not None
        assert command.help.startswith(summary.rstrip(".")), module
    assert all(f"  {command} " in group.get_help(context) for command in group.table)


def test_without_a_command_the_help_is_shown(run):
    for group in ((), ("trace",)):
        assert run(*group) == run(*group, "--help")
        assert run(*group)[0] == 0


@each_case(
    ("shell", "told"),
    [
        ("bash", "complete -o nosort -F _tensord_completion tensord"),
        ("zsh", "#compdef"),
        ("fish", "complete --no-files --command tensord"),
    ],
)
def test_completion_prints_the_script_of_a_shell(run, shell: str, told: str) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert told in out
    assert "_TENSORD_COMPLETE" in out


def test_an_unknown_shell_is_one_line(run) -> None:
    code, out, err = run("completion", "cmd")
    assert (code, out) == (2, "")
    assert "cmd" in err
    assert err.count("\n") == 1
