"""An explanation (see `why`) as text for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from .record import Record
from .text import duration, edge_name, name, place, printable
from .why import Explanation, Story, Wait

# A barrier over a full ring waits for thousands; the latest tell why.
_WIDEST = 20
_LONGEST_PATH = 40


def to_text(explanation: Explanation) -> str:
    """A tree of waits, then the critical path."""
    story = explanation.story
    lines = [_headline(story)]
    if story.record.location:
        lines.append(f"called at {story.record.location}")
    if story.record.error:
        lines.append(f"failed with {story.record.error}")
    lines += _branches(story.waits) if story.record.edges else ["waited for no other instruction"]
    lines += ["", f"critical path: {_path(explanation.path)}"]
    return "\n".join(printable(line) for line in lines) + "\n"


def to_json(explanation: Explanation) -> str:
    """The same for programs. Times are in nanoseconds."""
    path = [record.id for record in explanation.path]
    return json.dumps({"story": _story(explanation.story), "critical_path": path}) + "\n"


def _headline(story: Story) -> str:
    phases = (("blocked", story.blocked), ("queued", story.queued), ("ran", story.ran))
    spent = ", ".join(f"{phase} {duration(ns)}" for phase, ns in phases if ns)
    status = "" if story.record.status == "DONE" else story.record.status
    parts = (name(story.record), place(story.record), status, f"({spent})" if spent else "")
    return "  ".join(filter(None, parts))


def _branches(waits: tuple[Wait, ...]) -> Iterator[str]:
    shown = waits[:_WIDEST]
    for wait in shown:
        last = wait is waits[-1]
        yield ("└─ " if last else "├─ ") + _branch(wait)
        if wait.story is not None:
            indent = "   " if last else "│  "
            yield from (indent + line for line in _branches(wait.story.waits))
    if len(waits) > len(shown):
        yield f"└─ and {len(waits) - len(shown)} more that finished earlier"


def _branch(wait: Wait) -> str:
    reasons = ", ".join(
        edge_name(edge.reason, edge.copy) + (" (elided)" if edge.elided else "") for edge in wait.edges[:_WIDEST]
    )
    if wait.story is None:
        return f"{reasons}: #{wait.source}, which the trace has lost"
    waited = f"{duration(wait.waited)} for " if wait.waited else ""
    rest = "" if wait.story.told else "  ..."
    return f"{reasons}: {waited}{_headline(wait.story)}{'  <- critical' if wait.critical else ''}{rest}"


def _path(path: tuple[Record, ...]) -> str:
    names = [name(record) for record in reversed(path)]
    if len(names) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        names = [*names[:half], f"({len(names) - 2 * half} more)", *names[-half:]]
    return " -> ".join(names) + _elapsed(path)


def _elapsed(path: Iterable[Record]) -> str:
    times = [time for record in path for time in (record.received, record.finished) if time]
    return f", {duration(max(times) - min(times))} in all" if times else ""


def _story(story: Story) -> dict[str, object]:
    return {
        "id": story.record.id,
        "op": story.record.op or story.record.opcode,
        "device": story.record.device,
        "stream": story.record.stream,
        "status": story.record.status,
        "location": story.record.location,
        "error": story.record.error,
        "blocked": story.blocked,
        "queued": story.queued,
        "ran": story.ran,
        "told": story.told,
        "waits": [_wait(wait) for wait in story.waits],
    }


def _wait(wait: Wait) -> dict[str, object]:
    return {
        "source": wait.source,
        "edges": [edge._asdict() for edge in wait.edges],
        "waited": wait.waited,
        "critical": wait.critical,
        "story": None if wait.story is None else _story(wait.story),
    }
