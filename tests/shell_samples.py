"""The commands that documents show, and their promised output.

A sample stands in an indented block. In a block with lines that begin with `$`, those are the commands, and the lines
below each are its output; in other blocks each line is a command, perhaps with a comment behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from .pages import PAGES, ROOT

DOCUMENTS: Final = [*PAGES, *sorted(ROOT.glob("[a-z]*/README.md")), *sorted(ROOT.glob("tests/*/README.md"))]
PROGRAMS: Final = (
    r"(\.venv/bin/)?(tensord|make|python3?|pip|pipx|pytest|pre-commit|git|install|systemctl|journalctl|podman|eval|"
    r"out/trial/bin/\w+)"
)
COMMAND: Final = re.compile(rf"([A-Z_]+=\S+ )*{PROGRAMS} .*")

# Commands that no test runs, and the reasons.
NOT_RUN: Final = {
    r"make |.*-m pip install|.*(-m )?pytest|.*pre-commit": "builds, installs or checks; test_docs sees that it exists",
    r"(TENSORD_COMPILE=1 )?pip install \.$": "installs; tests/deploy builds both forms",
    r"\.venv/bin/python -m (bench|build)|git clone|python3 -m venv|out/trial/": "measures or releases, for minutes",
    r"(\.venv/bin/)?python examples/": "run by tests/examples",
    r"python -m tests\.fuzz|pip install atheris": "run by tests/fuzz, for less long",
    r"pipx |install |systemctl |journalctl |podman ": "needs the host's service manager or container engine",
    r"tensord stop": "ends the daemon that the others ask; tests/client/cli/daemon/test_stop.py stops one of its own",
    r"tensord top$": "fills a terminal until q is typed; tests/client/cli/daemon/test_top.py does that",
    r"tensord metrics(?! --once)": "serves until it is ended; tests/client/cli/metrics has it do so",
    r"tensord web": "serves until it is ended; tests/client/cli/web has it do so",
    r"tensord cluster ": "needs a Ray cluster; tests/vm/cluster/on_ray has one of simulated nodes",
    r"tensord serve .*cuda:": "needs a GPU",
}


class Sample(NamedTuple):
    """A command of a page: its line, and its promised output, if any is given."""

    page: Path
    line: int
    command: str
    output: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason(self) -> str:
        """The reason why it is not run; empty if it is."""
        return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, self.command)), "")


def samples_of(page: Path) -> Iterator[Sample]:
    """The samples of a page."""
    for first, block in _blocks(page.read_text()):
        prompted = any(line.startswith("$ ") for line in block)
        starts = [n for n, line in enumerate(block) if (line.startswith("$ ") if prompted else COMMAND.match(line))]
        for start, end in pairwise([*starts, len(block)]):
            command = re.sub(r"\s+#.*", "", block[start].removeprefix("$ "))
            output = tuple(line for line in block[start + 1 : end] if line) if prompted else ()
            yield Sample(page, first + start, command, output)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Indented blocks outside of fences: the number of the first line, counted from 1, and the lines."""
    block: list[str] = []
    fenced = False
    for number, line in enumerate([*text.splitlines(), "end"], 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (line.startswith("    ") or (block and not line)):
            block.append(line.strip())
        elif block:
            yield number - len(block), _joined(block)
            block = []


def _joined(lines: list[str]) -> list[str]:
    """The lines; one that goes on in the next one is joined with it, and the next one left empty."""
    for n in range(len(lines) - 2, -1, -1):
        if lines[n].endswith("\\"):
            lines[n : n + 2] = [f"{lines[n][:-1]}{lines[n + 1]}", ""]
    return lines
