"""An explanation (see `why`) as text for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ..record import EdgeRecord, Record
from .graph import Dependence
from .run_notes import NotedCall, Notes
from .stream_order import is_live
from .text import duration, edge_name, place, plural, printable, remark, status, title
from .volume import of
from .why import Explanation, Span, Story, Wait, waited_on_stream

# A barrier over a full ring waits for thousands; the latest ones explain the wait.
_WIDEST = 20
_LONGEST_PATH = 40
_MET_SHOWN = 8
_CALLS_SHOWN = 10
_EVICTIONS_SHOWN = 5
_WITHIN = 3


def to_text(explanation: Explanation) -> str:
    """A tree of waits, the dependences that had been met before, then the critical path."""
    story = explanation.story
    lines = [_headline(story)]
    if story.record.location:
        lines.append(f"called at {story.record.location}")
    lines += explanation.notes.about(story.record)
    if story.record.span:
        lines.append(f"in the span {'/'.join(story.record.span)}")
    if story.record.error:
        lines.append(f"failed with {story.record.error}")
    if story.record.edges or story.waits:
        lines += _branches(story, explanation.notes)
    else:
        lines.append("waited for no other instruction")
    lines += _evictions(explanation.evictions)
    if explanation.met:
        lines.append(f"met at admission: {_met(explanation.met)}")
    lines += ["", *_path(explanation)]
    lines += _inside(explanation)
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def to_json(explanation: Explanation) -> str:
    """The same for programs. Times are in nanoseconds; the spans, from the instruction back, add up to `total`."""
    found = {
        "story": _story(explanation.story),
        "met": [{"source": one.source, "reason": one.reason, "copy": one.copy} for one in explanation.met],
        "evictions": [{"id": one.id, "op": one.op, "location": one.location} for one in explanation.evictions],
        "critical_path": [record.id for record in explanation.path],
        "spans": [{"id": span.record.id, "gap": span.gap, "ran": span.ran} for span in explanation.spans],
        "total": explanation.total,
        **explanation.notes.plain(explanation.story.record),
    }
    return json.dumps(found) + "\n"


def _evictions(evictions: Sequence[Record]) -> Iterator[str]:
    """The evictions that it waited for, each with the line that needed the room."""
    if evictions:
        yield f"waited for memory, until {plural(len(evictions), 'eviction')} had made room:"
    for one in evictions[:_EVICTIONS_SHOWN]:
        needed = f"  for {one.location}" if one.location else ""
        yield f"   {title(one)}  {status(one)}{needed}"
    if len(evictions) > _EVICTIONS_SHOWN:
        yield f"   and {len(evictions) - _EVICTIONS_SHOWN} more that ended earlier"


def _headline(story: Story) -> str:
    phases = [("blocked", story.blocked), ("queued", story.queued)]
    if story.record.finished:
        phases.append(("ran", story.ran))
    spent = ", ".join(f"{phase} {duration(ns)}" for phase, ns in phases if ns)
    parts = (title(story.record), place(story.record), remark(story.record, story.until), f"({spent})" if spent else "")
    return "  ".join(filter(None, parts))


def _inside(explanation: Explanation) -> Iterator[str]:
    """The calls inside of the instruction, if it is a run that was timed: those that took longest, in their order."""
    calls = explanation.notes.calls(explanation.story.record)
    if not calls:
        return
    yield ""
    yield f"inside, {plural(len(calls), 'call')} in {duration(sum(call.ran for call in calls))}:"
    shown = _longest(calls, _CALLS_SHOWN)
    for call in shown:
        yield f"{duration(call.ran):>11}  {call.text}"
    if len(shown) < len(calls):
        rest = sum(call.ran for call in calls) - sum(call.ran for call in shown)
        yield f"{duration(rest):>11}  in {len(calls) - len(shown)} more"
    chain = explanation.notes.chain(explanation.story.record)
    names = " ".join(f"/{call.step}" for call in chain[-_CALLS_SHOWN:])
    cut = "... " if len(chain) > _CALLS_SHOWN else ""
    yield f"the longest chain of dependences among them took {duration(sum(call.ran for call in chain))}: {cut}{names}"


def _longest(calls: Sequence[NotedCall], most: int) -> list[NotedCall]:
    """Those that took longest, in their order."""
    chosen = sorted(range(len(calls)), key=lambda n: calls[n].ran, reverse=True)[:most]
    return [calls[n] for n in sorted(chosen)]


def _branches(story: Story, notes: Notes) -> Iterator[str]:
    shown = story.waits[:_WIDEST]
    for wait in shown:
        last = wait is story.waits[-1]
        yield ("└─ " if last else "├─ ") + _branch(story.record, wait, notes)
        if wait.story is not None:
            indent = "   " if last else "│  "
            yield from (indent + line for line in _branches(wait.story, notes))
    if len(story.waits) > len(shown):
        yield f"└─ and {len(story.waits) - len(shown)} more that finished earlier"


def _branch(record: Record, wait: Wait, notes: Notes) -> str:
    if wait.story is None:
        return f"{_reasons(record, wait, None, notes)}: #{wait.source}, which the trace has lost"
    source = wait.story.record
    rest = ("  <- critical" if wait.critical else "") + ("" if wait.story.told else "  ...")
    if not wait.edges:
        return f"behind {title(source)} on {place(source)}: {duration(wait.waited)}{_spent(wait.story)}{rest}"
    waited = f"{duration(wait.waited)} for " if wait.waited else ""
    return f"{_reasons(record, wait, source, notes)}: {waited}{_headline(wait.story)}{rest}"


def _spent(story: Story) -> str:
    """The rest of the headline, behind title and place."""
    return _headline(story).removeprefix(f"{title(story.record)}  {place(story.record)}")


def _reasons(record: Record, wait: Wait, source: Record | None, notes: Notes) -> str:
    reasons = [_reason(edge, record, source) + notes.edge(edge, record, source) for edge in wait.edges[:_WIDEST]]
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
    for number, step in enumerate(steps[:-1]):
        lines[number] = "\n".join((lines[number], *_within(step.record, explanation.notes)))
    if len(lines) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        hidden = sum(span.gap + span.ran for span in steps[half:-half])
        lines[half:-half] = [f"{'...':>10} {'...':>10}  ({len(lines) - 2 * half} more, {duration(hidden)} together)"]
    yield from "\n".join(lines).splitlines()


def _within(record: Record, notes: Notes) -> Iterator[str]:
    """The calls that took much of a run on the path."""
    calls = notes.calls(record)
    total = sum(call.ran for call in calls)
    for call in _longest(calls, _WITHIN):
        if call.ran * 10 >= total:
            yield f"{'':>10} {duration(call.ran):>10}    in it: {call.text}"


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
