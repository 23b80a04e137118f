"""Draw the life of an instruction in docs/architecture.md from its table: .venv/bin/python docs/make_life.py."""

from __future__ import annotations

import re
from pathlib import Path

from tensord.vm.model.lifecycle import FINAL, TRANSITIONS, Status

PAGE = Path(__file__).parent / "architecture.md"


def picture() -> str:
    """The table as a Mermaid state diagram, an arrow per legal step."""
    lines = ["stateDiagram-v2", f"    [*] --> {Status.WAITING}"]
    for status, steps in TRANSITIONS.items():
        lines += [f"    {status} --> {after}" for after in steps.values()]
        lines += [f"    {status} --> [*]"] * (status in FINAL)
    return "\n".join(lines)


def renewed(page: str) -> str:
    """The page with the picture as it should be."""
    return re.sub(r"```mermaid\nstateDiagram-v2.*?\n```", f"```mermaid\n{picture()}\n```", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
