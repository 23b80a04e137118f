"""The commands: which there are, and what is answered without the parser, whose import takes longer than the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple


class Command(NamedTuple):
    """A command: the module that adds it with `add(app)`, and what it does, as its docstring begins."""

    module: str
    summary: str


# In the order of the help. Only the module of the command that is called is imported.
COMMANDS: Final = {
    "serve": Command("serve", "Run the daemon, until SIGTERM or Ctrl-C."),
    "status": Command("admin", "Show the daemon's health: memory, instructions, hanging kernels."),
    "sessions": Command("admin", "List the connected sessions and what they hold."),
    "tensors": Command("admin", "List the largest tensors, and where their copies are."),
    "devices": Command("admin", "Show each device and what its streams do."),
    "top": Command("top", "Watch the daemon work; q or Ctrl-C ends it."),
    "trace": Command("trace", "Record, verify, draw and explain what a daemon did."),
    "ops": Command("ops", "List the ops that a session can call, or describe one in detail."),
    "doctor": Command("doctor", "Find common problems, and say what to do."),
    "keygen": Command("keygen", "Make a pair of keys for tcp: NAME.key, which is public, and NAME.key_secret."),
    "completion": Command("completion", "Print the script that completes commands and options in a shell."),
}
TITLE: Final = "One owner for the tensors and devices of a machine."
ASKED: Final = frozenset({"status", "sessions", "devices"})  # questions without options of their own


def light(given: Sequence[str]) -> Callable[[], None] | None:
    """What answers these arguments without the parser; None if nothing does."""
    if not given or list(given) == ["--help"]:
        return overview
    if given[0] in ASKED and set(given[1:]) <= {"--json"}:
        return lambda: _ask(given[0], as_json="--json" in given)
    return None


def _ask(what: str, *, as_json: bool) -> None:
    from .shown import tell

    tell(what, None, as_json=as_json)


def overview() -> None:
    """Print what there is."""
    width = max(map(len, COMMANDS)) + 2
    options = [
        ("--version", "Print the version and exit."),
        ("--install-completion", "Install completion for the current shell."),
        ("--show-completion", "Show completion for the current shell."),
        ("--help", "Show this message; COMMAND --help says all about one command."),
    ]
    lines = ["Usage: tensord [OPTIONS] COMMAND [ARGS]...", "", f"  {TITLE}", "", "Options:"]
    lines += [f"  {name:<22}{text}" for name, text in options]
    lines += ["", "Commands:", *(f"  {name:<{width}}{one.summary}" for name, one in COMMANDS.items())]
    print("\n".join(lines))  # noqa: T201
