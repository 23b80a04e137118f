"""Writes the result: as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from .measure import DAEMON_CONFIG, Row, Settings

VERDICTS = {
    "aim": "[green]aim[/]",
    "must": "[yellow]must[/]",
    "missed": "[red]missed[/]",
    "not judged": "[dim]not judged[/]",
    "not measured": "-",
}


def machine() -> dict[str, Any]:
    """The machine on which the numbers were measured."""
    return {
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def shown(value: float | None, unit: str) -> str:
    """A number with three significant digits, and its unit."""
    if value is None:
        return "-"
    return (f"{value:,.0f}" if value >= 1_000 else f"{value:#.3g}".rstrip(".")) + f" {unit}"


def limits(row: Row) -> tuple[str, str]:
    """Must and aim, in the unit of the judged number."""
    if row.quick:
        return "-", "-"
    unit = row.unit if row.judge == "ours" else "x"
    side = "≥" if row.more_is_better else ""
    return f"{side}{row.must:g} {unit}", f"{side}{row.aim:g} {unit}"


def print_table(rows: list[Row], console: Console) -> None:
    """Print one line per row, with the judged number in bold, and the notes below."""
    name = Column("workload", no_wrap=True)
    table = Table(
        name,
        "tensord",
        "baseline",
        "",
        "ratio",
        "must",
        "aim",
        "met",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for row in rows:
        ours, ratio = shown(row.ours, row.unit), shown(row.ratio, "x")
        ours, ratio = (f"[bold]{ours}[/]", ratio) if row.judge == "ours" else (ours, f"[bold]{ratio}[/]")
        baseline = shown(row.baseline, row.unit)
        table.add_row(row.name, ours, baseline, row.baseline_name, ratio, *limits(row), VERDICTS[row.verdict])
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{row.name}: {row.note}")


def write_json(rows: list[Row], settings: Settings, path: Path) -> None:
    """Write the machine, the settings, the daemon's configuration (if there was a daemon), and the rows, each with
    every run."""
    document = {
        "machine": machine(),
        "runs": settings.runs,
        "quick": settings.quick,
        "daemon": DAEMON_CONFIG if settings.through_daemon else None,
        "rows": [row.as_json() for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
