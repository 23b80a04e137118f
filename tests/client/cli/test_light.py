"""Light commands answer quickly, since they import only what they need; shells complete them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tensord.client.cli.application import COMMANDS, application

HEAVY = ("numpy", "zmq", "rich", "structlog", "msgpack", "ctypes", "asyncio")
PROGRAM = """
import json, sys
from tensord.client.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    print(json.dumps([left.code, *sys.modules]), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a command line imports."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    code, *modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    return set(modules)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("--version", ("typer",)),
        ("--help", ()),
        ("keygen --help", ("tensord.client.cli.admin", "tensord.client.cli.trace")),
        ("status --help", ("tensord.client.cli.trace",)),
    ],
)
def test_a_light_command_imports_nothing_that_it_does_not_need(line: str, more: tuple[str, ...]) -> None:
    modules = imported(*line.split())
    assert not modules.intersection((*HEAVY, *more))


def test_a_question_about_an_op_needs_neither_zmq_nor_rich() -> None:
    assert not imported("ops", "matmul").intersection({"zmq", "rich", "structlog"})


def test_every_command_is_found_in_its_module(run) -> None:
    for command, module in COMMANDS.items():
        app = application([command])
        names = [one.name or (one.callback.__name__ if one.callback else "") for one in app.registered_commands]
        assert command in (*names, *(group.name for group in app.registered_groups)), module
    listed = run("--help")[1]
    assert all(f"  {command} " in listed for command in COMMANDS)


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
