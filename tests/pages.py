"""The Python blocks of a document, as one program.

A page is one program: its blocks run in order, in one namespace, in a process of their own, warnings as errors. The
output of a `print` stands in the comment behind it, in the comments right below it, or in both; `...` stands for
anything. A block that cannot run says so in its first line: `# not run: the reason`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

from .forked import run_script

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SEPARATOR = "\x1e"  # between the outputs of two blocks
PROMISE = re.compile(r".*\bprint\(.*?\)(?:  # (.*)|(?!.*  # ).*)")
MORE = re.compile(r"\s*# (.*)")
NOT_RUN = re.compile(r"# not run: \S+")


@dataclass(frozen=True)
class Block:
    """One Python block: the line of the page on which its code begins, counted from 1, and the code."""

    line: int
    code: str

    @property
    def runs(self) -> bool:
        """Is it part of the page's program?"""
        return not NOT_RUN.match(self.code)

    @property
    def promised(self) -> str:
        """The promised output."""
        lines: list[str] = []
        below = False  # are we right below a promise?
        for line in self.code.splitlines():
            found = PROMISE.fullmatch(line) or (MORE.fullmatch(line) if below else None)
            below = found is not None
            if found and found[1] is not None:
                lines.append(found[1])
        return "".join(line + "\n" for line in lines)


def blocks_of(page: Path) -> list[Block]:
    """The page's Python blocks, those that do not run included."""
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


def program_of(page: Path) -> str:
    """The blocks that run, on the lines that they have in the page."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.runs:
            lines += [""] * (block.line - 2 - len(lines)) + [f"print({SEPARATOR!r}, end='', flush=True)"]
            lines += block.code.splitlines()
    return "\n".join(lines) + "\n"


def run_page(page: Path, folder: Path) -> list[tuple[Block, str]]:
    """Run the page's program in that empty folder, where it finds no daemon: each block, and its output."""
    program = folder / f"{page.stem}.py"
    program.write_text(program_of(page))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENSORD_")}
    environment["XDG_RUNTIME_DIR"] = str(folder)
    result = run_script(program.name, env=environment, cwd=folder, whole=False)
    assert result.returncode == 0, f"{page.name}, with the page's line numbers:\n{result.stderr}"
    ran = [block for block in blocks_of(page) if block.runs]
    return list(zip(ran, result.stdout.split(SEPARATOR)[1:], strict=True))


def is_as_promised(block: Block, printed: str) -> bool:
    """Did the block print the promised output?"""
    return OutputChecker().check_output(block.promised, printed, ELLIPSIS)
