"""Light commands answer quickly, since they import only what they need; shells complete them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tensord.client.cli.application import application
from tensord.client.cli.line.commands import Commands

from ...daemon import Daemon

NEVER = (
    "numpy",
    "rich",
    "structlog",
    "asyncio",
    "pydantic",
    "tensord.client.session.session",
)  # what takes long to import
HEAVY = (*NEVER, "zmq", "msgpack", "ctypes")
PROGRAM = """
import json, sys
from tensord.client.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    print(json.dumps([left.code, *sys.modules]), file=sys.stderr)
"""


def imported(*arguments: str, address: str = "", status: int = 0) -> set[str]:
    """The modules that a command line imports, which ends with that status."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    there = os.environ | {"TENSORD_ADDRESS": address}
    done = subprocess.run(command, env=there, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    code, *modules = json.loads(done.stderr.splitlines()[-1])
    assert code == status
    return set(modules)


@pytest.mark.parametrize(
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
    modules = imported(*line.split())
    assert not modules.intersection((*HEAVY, *more))


@pytest.mark.parametrize("question", ["ops", "ops matmul", "ops --json"])
def test_a_question_about_ops_needs_neither_their_kernels_nor_a_daemon(question: str) -> None:
    modules = imported(*question.split())
    assert not modules.intersection((*NEVER, "zmq", "tensord.interpreter.ops"))


@pytest.mark.parametrize(
    "question",
    [
        "status",
        "sessions --json",
        "devices",
        "tensors",
        "tensors --limit 3 --device cpu:0 --json",
        "evict --device cpu:0",
        "top --once --interval 0.1",
    ],
)
def test_a_question_to_a_daemon_needs_neither_numpy_nor_a_session(daemon: Daemon, question: str) -> None:
    modules = imported(*question.split(), address=daemon.address)
    assert "zmq" in modules
    assert not modules.intersection((*NEVER, "hashlib"))


@pytest.mark.parametrize("command", ["top", "checkpoint c", "restore c", "trace record -o x.trace"])
def test_that_there_is_no_daemon_is_said_without_a_session(command: str, tmp_path: Path) -> None:
    modules = imported(*command.split(), address=f"ipc://{tmp_path}/socket", status=1)
    assert not modules.intersection(NEVER)


@pytest.mark.parametrize(
    "command",
    [
        "show --limit 3",
        "stats",
        "memory --by op",
        "verify",
        "why {}",
        "dag --format html --fold-by line",
        "timeline",
        "dump -o {}.trace",
    ],
)
def test_the_trace_of_a_daemon_is_read_without_numpy(
    daemon: Daemon, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with daemon.connect() as session:
        session.asarray(1.0).numpy()
        newest = session.trace().records[-1].id
        modules = imported("trace", *command.format(newest).split(), address=daemon.address)
    assert "zmq" in modules
    assert not modules.intersection(NEVER)


def groups(group: Commands = application) -> Iterator[Commands]:
    """The group and those in it."""
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


@pytest.mark.parametrize(
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
