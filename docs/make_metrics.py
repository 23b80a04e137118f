"""Writes the list of metrics in docs/metrics.md, from their table: .venv/bin/python docs/make_metrics.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tensord.interpreter.metrics.table import FAMILIES

PAGE: Final = Path(__file__).parent / "metrics.md"
MARK: Final = "<!-- written by docs/make_metrics.py from interpreter/metrics/table.py -->"


def rows() -> Iterator[str]:
    """A row for each metric."""
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


def renewed(page: str) -> str:
    """The page with the list of today."""
    before, _, rest = page.partition(MARK)
    _, _, after = rest.partition("\n\n")
    return (
        "\n".join([before + MARK, "| metric | kind | labels | what it is |", "|---|---|---|---|", *rows()])
        + f"\n\n{after}"
    )


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
