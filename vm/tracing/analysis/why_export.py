"""An explanation (see `why`) as text for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ..record import EdgeRecord, Record
from .graph import Dependence
from .stream_order import is_live
from .text import duration, edge_name, place, printable, remark, status, title
from .volume import of
from .why import Explanation, Span, Story, Wait, waited_on_stream

# A barrier over a full ring waits for thousands; the latest ones explain the wait.
_WIDEST = 20
_LONGEST_PATH = 40
_MET_SHOWN = 8


def to_text(explanation: Explanation) -> str:
    """A tree of waits, the dependences that had been met before, then the critical path."""
    story = explanation.story
    lines = [_headline(story)]
    if story.record.location:
        lines.append(f"called at {story.record.location}")
    if story.record.span:
        lines.append(f"in the span {'/'.join(story.record.span)}")
    if story.record.error:
        lines.append(f"failed with {story.record.error}")
    lines += _branches(story) if story.record.edges or story.waits else ["waited for no other instruction"]
    if explanation.met:
        lines.append(f"met at admission: {_met(explanation.met)}")
    lines += ["", *_path(explanation)]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def to_json(explanation: Explanation) -> str:
    """The same for programs. Times are in nanoseconds; the spans, from the instruction back, add up to `total`."""
    found = {
        "story": _story(explanation.story),
        "met": [{"source": one.source, "reason": one.reason, "copy": one.copy} for one in explanation.met],
        "critical_path": [record.id for record in explanation.path],
        "spans": [{"id": span.record.id, "gap": span.gap, "ran": span.ran} for span in explanation.spans],
        "total": explanation.total,
    }
    return json.dumps(found) + "\n"


def _headline(story: Story) -> str:
    phases = [("blocked", story.blocked), ("queued", story.queued)]
    if story.record.finished:
        phases.append(("ran", story.ran))
    spent = ", ".join(f"{phase} {duration(ns)}" for phase, ns in phases if ns)
    parts = (title(story.record), place(story.record), remark(story.record, story.until), f"({spent})" if spent else "")
    return "  ".join(filter(None, parts))


def _branches(story: Story) -> Iterator[str]:
    shown = story.waits[:_WIDEST]
    for wait in shown:
        last = wait is story.waits[-1]
        yield ("└─ " if last else "├─ ") + _branch(story.record, wait)
        if wait.story is not None:
            indent = "   " if last else "│  "
            yield from (indent + line for line in _branches(wait.story))
    if len(story.waits) > len(shown):
        yield f"└─ and {len(story.waits) - len(shown)} more that finished earlier"


def _branch(record: Record, wait: Wait) -> str:
    if wait.story is None:
        return f"{_reasons(record, wait, None)}: #{wait.source}, which the trace has lost"
    source = wait.story.record
    rest = ("  <- critical" if wait.critical else "") + ("" if wait.story.told else "  ...")
    if not wait.edges:
        return f"behind {title(source)} on {place(source)}: {duration(wait.waited)}{_spent(wait.story)}{rest}"
    waited = f"{duration(wait.waited)} for " if wait.waited else ""
    return f"{_reasons(record, wait, source)}: {waited}{_headline(wait.story)}{rest}"


def _spent(story: Story) -> str:
    """The rest of the headline, behind title and place."""
    return _headline(story).removeprefix(f"{title(story.record)}  {place(story.record)}")


def _reasons(record: Record, wait: Wait, source: Record | None) -> str:
    reasons = [_reason(edge, record, source) for edge in wait.edges[:_WIDEST]]
    if wait.behind:
        reasons.append(_behind(source))
    return ", ".join(reasons)


def _reason(edge: EdgeRecord, record: Record, source: Record | None) -> str:
    elided = " (elided)" if edge.elided else ""
    if waited_on_stream(edge, record, source):
        elided = " (elided, waited on the device)"
    return edge_name(edge.reason, edge.copy) + elided


def _met(met: Sequence[Dependence]) -> str:
    shown = ", ".join(f"#{one.source} {edge_name(one.reason, one.copy)}" for one in met[-_MET_SHOWN:])
    more = len(met) - _MET_SHOWN
    return f"{shown}{f' and {more} more' if more > 0 else ''}, already done"


def _path(explanation: Explanation) -> Iterator[str]:
    live = is_live(explanation.story.record)
    end = "until the trace was taken, not finished" if live else "to finished"
    yield f"critical path, {duration(explanation.total)} from received {end}:"
    yield "      wait        run"
    steps = list(reversed(explanation.spans))
    lines = [_step(span, before) for span, before in zip(steps, [None, *steps], strict=False)]
    if len(lines) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        hidden = sum(span.gap + span.ran for span in steps[half:-half])
        lines[half:-half] = [f"{'...':>10} {'...':>10}  ({len(lines) - 2 * half} more, {duration(hidden)} together)"]
    yield from lines


def _step(span: Span, before: Span | None) -> str:
    gap, ran = (duration(ns) if ns else "" for ns in (span.gap, span.ran))
    after = "" if before is None else f"after #{before.record.id}: {_after(before)}"
    earlier = span.record.finished - span.record.started - span.ran if span.record.finished and span.ran else 0
    cut = f"(and {duration(earlier)} before the path begins)" if earlier > 0 else ""
    ending = "" if span.record.status == "DONE" else status(span.record)
    what = "  ".join(filter(None, (title(span.record), place(span.record), ending, after, cut)))
    return f"{gap:>10} {ran:>10}  {what}"


def _after(before: Span) -> str:
    reasons = list(dict.fromkeys(edge_name(edge.reason, edge.copy) for edge in before.edges))[:3]
    return ", ".join(reasons) or _behind(before.record)


def _behind(source: Record | None) -> str:
    on_control = source is not None and source.stream.endswith("/control")
    return "behind it on the driving thread" if on_control else "behind it on the stream"


def _story(story: Story) -> dict[str, object]:
    return {
        "id": story.record.id,
        "op": story.record.op or story.record.opcode,
        "of": of(story.record),
        "device": story.record.device,
        "stream": story.record.stream,
        "status": status(story.record),
        "location": story.record.location,
        "span": story.record.span,
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
        "behind": wait.behind,
        "waited": wait.waited,
        "critical": wait.critical,
        "story": None if wait.story is None else _story(wait.story),
    }
