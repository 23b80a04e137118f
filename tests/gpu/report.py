"""The outcome of a proof: as JSON for programs, as a table for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHOWN = 20  # failures and figures of a stage in the table for people
MESSAGE = 300  # characters of a failure there
WIDTH = 26


def write(folder: Path, document: dict[str, Any]) -> None:
    """report.json and report.md. Written after each stage, so that a proof that is cut off leaves its results."""
    (folder / "report.json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    (folder / "report.md").write_text("\n".join(pages(document)) + "\n")


def table(stages: Sequence[dict[str, Any]]) -> list[str]:
    """One line per stage."""
    rows = [("stage", "status", "checks", "failed", "skipped", "seconds", "why")]
    for stage in stages:
        counts = stage["counts"]
        checks = counts["passed"] + counts["failed"]
        numbers = (f"{checks:,}", str(counts["failed"]), str(counts["skipped"]), f"{stage['seconds']:.1f}")
        rows.append((stage["name"], stage["status"], *numbers, first_line(stage["why"])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [[cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)] + [row[-1]] for row in rows]
    rule = ["-" * width for width in widths] + ["---"]
    return [f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:])]


def verdict(document: dict[str, Any]) -> str:
    """The outcome in a sentence."""
    stages = document["stages"]
    if document.get("fake"):
        return f"this is no proof: {document['device']} was a fake ({document['fake']})"
    if document["passed"] and document["complete"]:
        return f"{document['device']} is proven: all {len(stages)} stages passed in {document['seconds']:.0f} s"
    if document["passed"]:
        return (
            f"{', '.join(stage['name'] for stage in stages)} passed on {document['device']}; other stages were not run"
        )
    bad = [f"{stage['name']} ({stage['status']})" for stage in stages if stage["status"] != "passed"]
    rest = "" if not document["interrupted"] else "; it was interrupted"
    return f"{document['device']} is not proven: {', '.join(bad) or 'no stage ran'}{rest}"


def pages(document: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    machine = document["machine"]
    yield f"# Proof of {document['device']}"
    yield ""
    yield f"{verdict(document)}."
    yield ""
    yield f"- commit {document['commit'] or 'unknown'}, {document['started']}, {document['seconds']:.0f} s"
    for run in document["resumed"]:
        yield f"- goes on with a run of commit {run['commit'] or 'unknown'}, {run['started']}"
    yield f"- Python {machine.get('python')}, {machine.get('platform')}, {machine.get('cpus')} processors"
    yield f"- packages: {', '.join(f'{name} {number}' for name, number in machine.get('packages', {}).items())}"
    yield f"- GPU: {machine.get('gpu') or machine.get('missing') or machine.get('error') or 'not used'}"
    for name in ("used", "problems"):
        if said := document["bundle"][name]:
            yield f"- bundle, {name}: {', '.join(said)}"
    yield ""
    yield from table(document["stages"])
    for stage in document["stages"]:
        yield from about(stage)


def about(stage: dict[str, Any]) -> Iterator[str]:
    """The details of a stage beyond its line."""
    yield ""
    yield f"## {stage['name']}: {stage['title']}"
    yield ""
    yield f"{stage['status']}{': ' if stage['why'] else ''}{stage['why']} ({stage['log']})"
    if stage["figures"]:
        yield ""
        yield from map(figure, stage["figures"][:SHOWN])
    for heading, said in (
        ("failed", [f"{one['check']}: {flat(one['message'])}" for one in stage["failures"]]),
        ("running at the end", stage["running"]),
        ("skipped", [f"{one['count']} x {flat(one['reason'])}" for one in stage["skipped"]]),
        ("notes", stage["notes"]),
        ("slowest", [", ".join(f"{check} {seconds:.1f} s" for check, seconds in stage["slowest"].items())]),
    ):
        yield from listed(heading, said)


def listed(heading: str, said: Sequence[str]) -> Iterator[str]:
    """A list, of which the beginning is shown."""
    if any(said):
        yield ""
        yield f"{heading.capitalize()}:"
        yield ""
        yield from (f"- {text}" for text in said[:SHOWN])
        if len(said) > SHOWN:
            yield f"- and {len(said) - SHOWN} more, in report.json"


def figure(one: dict[str, Any]) -> str:
    """A figure with its additional values."""
    value = one["value"]
    shown = f"{value:,.4g}" if isinstance(value, int | float) else str(value)
    rest = [f"{key} {said}" for key, said in one.items() if key not in {"name", "value", "unit"} and said != ""]
    return f"- {one['name']}: {shown} {one['unit']}".rstrip() + (f" ({', '.join(rest)})" if rest else "")


def flat(text: str) -> str:
    """A message in one line."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE else f"{line[:MESSAGE]}..."


def first_line(text: str) -> str:
    """The text cut to the width of a cell."""
    return flat(text.partition("\n")[0]).replace("|", "\\|")
