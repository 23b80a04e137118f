"""Light commands answer quickly, since they import only what they need; shells complete them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tensord.client.cli.application import application
from tensord.client.cli.commands import COMMANDS

from ...daemon import Daemon

HEAVY = ("numpy", "zmq", "rich", "structlog", "msgpack", "ctypes", "asyncio")
PROGRAM = """
import json, sys
from tensord.client.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    print(json.dumps([left.code, *sys.modules]), file=sys.stderr)
"""


def imported(*arguments: str, address: str = "") -> set[str]:
    """The modules that a command line imports."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    there = os.environ | {"TENSORD_ADDRESS": address}
    done = subprocess.run(command, env=there, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    code, *modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("--version", ("typer",)),
        ("--help", ("typer", "tensord.client.cli.admin")),
        ("keygen --help", ("tensord.client.cli.admin", "tensord.client.cli.trace")),
        ("status --help", ("tensord.client.cli.trace",)),
    ],
)
def test_a_light_command_imports_nothing_that_it_does_not_need(line: str, more: tuple[str, ...]) -> None:
    modules = imported(*line.split())
    assert not modules.intersection((*HEAVY, *more))


def test_a_question_about_an_op_needs_neither_zmq_nor_rich() -> None:
    assert not imported("ops", "matmul").intersection({"zmq", "rich", "structlog"})


@pytest.mark.parametrize("question", ["status", "sessions --json", "devices"])
def test_a_plain_question_needs_neither_the_parser_nor_a_session(daemon: Daemon, question: str) -> None:
    modules = imported(*question.split(), address=daemon.address)
    assert "zmq" in modules
    assert not modules.intersection({"numpy", "typer", "pydantic", "tensord.client.session", "asyncio", "structlog"})


def test_a_question_with_options_needs_no_session(daemon: Daemon) -> None:
    modules = imported("tensors", "--limit", "3", address=daemon.address)
    assert not modules.intersection({"numpy", "tensord.client.session", "asyncio", "structlog"})


def test_every_command_is_found_in_its_module_and_begins_with_its_summary(run):
    for command, (module, summary) in COMMANDS.items():
        app = application([command])
        single: list[Any] = app.registered_commands
        groups: list[Any] = app.registered_groups
        described = {one.name or one.callback.__name__: one.callback.__doc__ for one in single}
        described |= {group.name: group.typer_instance.info.help for group in groups}
        assert described[command].startswith(summary.rstrip(".")), module
    listed = run("--help")[1]
    assert all(f"  {command} " in listed for command in COMMANDS)
    assert run()[1] == listed


@pytest.mark.parametrize(("shell", "told"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --com")])
def test_completion_prints_the_script_of_a_shell(run, shell: str, told: str) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert told in out
    assert "_TENSORD_COMPLETE" in out


def test_an_unknown_shell_is_one_line(run) -> None:
    code, out, err = run("completion", "cmd")
    assert (code, out) == (1, "")
    assert "cmd" in err
    assert err.count("\n") == 1
