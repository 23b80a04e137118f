"""Write the table of options in docs/devices.md from the declarations: .venv/bin/python docs/make_devices.py."""

from __future__ import annotations

import re
from pathlib import Path

from tensord.streams.catalogue import KINDS  # with all of this tree
from tensord.streams.options import rows

PAGE = Path(__file__).parent / "devices.md"


def table() -> str:
    """The table, one line per option."""
    kinds = {name: kind.options for name, kind in sorted(KINDS.items())}
    head = ("option", "unit", *(f"`{name}`" for name in kinds), "meaning")
    lines = [head, ("---",) * len(head), *rows(kinds)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---").replace("|--- |", "|---|")


def renewed(page: str) -> str:
    """The page with the table as it should be."""
    return re.sub(r"(?m)^\| option \|.*\n(\|.*\n)*", lambda _: table(), page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
