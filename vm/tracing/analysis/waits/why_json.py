"""Writes an explanation (see `why`) as JSON, for programs: the keys are those of `tensord trace why --json`."""

from __future__ import annotations

import json
from dataclasses import asdict

from ..recorded.derived import operands_text
from ..recorded.text import compiles, status
from .why import Explanation, PathStep, SourceWait, Story


def to_json(explanation: Explanation) -> str:
    """The explanation for programs.

    Times are in nanoseconds; the spans go from the instruction back, and add up to `total`.
    """
    fields = {
        "story": _story(explanation.story),
        "met": [{"source": one.source, "reason": one.reason, "copy": one.copy} for one in explanation.met],
        "evictions": [
            {"id": one.id, "op": one.op, "location": one.location, "caused_by": one.caused_by}
            for one in explanation.evictions
        ],
        "critical_path": [record.id for record in explanation.path],
        "spans": [_span(span) for span in explanation.spans],
        "lines": [asdict(line) for line in explanation.lines],
        "total": explanation.total,
        "compiling": explanation.compiling,
        **explanation.notes.plain(explanation.story.record),
    }
    return json.dumps(fields) + "\n"


def _span(span: PathStep) -> dict[str, object]:
    record = span.record
    what = {"op": record.op or record.opcode, "location": record.location}
    return {"id": record.id, **what, "gap": span.gap, "ran": span.ran, "compiling": compiles(record)}


def _story(story: Story) -> dict[str, object]:
    return {
        "id": story.record.id,
        "op": story.record.op or story.record.opcode,
        "of": operands_text(story.record),
        "device": story.record.device,
        "stream": story.record.stream,
        "status": status(story.record),
        "session": story.record.session,
        "caused_by": story.record.caused_by,
        "location": story.record.location,
        "span": story.record.span,
        "error": story.record.error,
        "held": story.record.held,
        "blocked": story.blocked,
        "queued": story.queued,
        "ran": story.ran,
        "told": story.expanded,
        "waits": [_wait(wait) for wait in story.waits],
    }


def _wait(wait: SourceWait) -> dict[str, object]:
    return {
        "source": wait.source,
        "edges": [edge._asdict() for edge in wait.edges],
        "behind": wait.behind,
        "waited": wait.waited,
        "critical": wait.critical,
        "story": None if wait.story is None else _story(wait.story),
    }
