"""Writes an explanation (see `why`) as text for a terminal; `why_json` writes it for programs.

The text has these parts: the instruction; the tree of its waits, each source with its own waits below it; the evictions
for which it waited; the dependences that were met at admission; the critical path, by line of the program and step by
step; the calls inside a run that took longest. Each part is cut to a number of lines. `session` is the session for
which the explained instruction was made: other sessions are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .....interpreter.opcodes import Opcode
from .....interpreter.wire.locations import CALLED_BY
from ...link_labels import launch_nodes
from ...record import EdgeRecord, Record
from ..graphs.graph import Dependence
from ..recorded.stream_order import is_live
from ..recorded.text import duration, edge_name, full_stream_name, plural, printable, remark, status, title
from .run_notes import NotedCall, Notes
from .why import Explanation, LineSum, PathStep, SourceWait, Story, waited_on_stream

# A barrier over a full ring waits for thousands of instructions; those that ended last explain the wait.
_WAITS_SHOWN = 20  # of one instruction, and reasons for one wait
_STEPS_SHOWN = 20  # of the critical path, half of them at each end
_LINES_SHOWN = 10  # of the program
_OPS_SHOWN = 3  # of one line
_MET_SHOWN = 8  # dependences met at admission
_CALLS_SHOWN = 10  # inside the explained run
_CALLS_OF_STEP_SHOWN = 3  # inside a run on the critical path
_EVICTIONS_SHOWN = 5


def to_text(explanation: Explanation) -> str:
    """The tree of waits, the dependences met at admission, then the critical path, by line and step by step."""
    story = explanation.story
    session = story.record.caused_by
    lines = [_headline(story, session)]
    if story.record.location:
        lines.append(f"called at {story.record.location}")
    if story.record.session != session:
        lines.append(f"planned by the machine, for session {session}")
    lines += [*launch_line(story.record), *explanation.notes.about(story.record)]
    if story.record.span:
        lines.append(f"in the span {'/'.join(story.record.span)}")
    if story.record.error:
        lines.append(f"failed with {story.record.error}")
    if story.record.edges or story.waits:
        lines += _branches(story, explanation.notes, session)
    else:
        lines.append("waited for no other instruction")
    lines += _evictions(explanation.evictions, session)
    if explanation.met:
        lines.append(f"met at admission: {_met(explanation.met)}")
    lines += ["", *_path(explanation)]
    lines += _inside(explanation)
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def launch_line(record: Record) -> Iterator[str]:
    """A line about the launch of a collective: the library, the number of devices, and the other nodes."""
    if record.opcode == Opcode.LAUNCH:
        ways, ranks = record.op.partition(" #")[0].rsplit(" of ", 1)
        others = launch_nodes(record.op)
        beside = f", together with {', '.join(others)}" if others else ""
        yield f"one launch by {ways.rsplit(' ', 1)[-1]} on all {ranks} devices{beside}"


def _evictions(evictions: Sequence[Record], session: int) -> Iterator[str]:
    """Lines about the evictions for which the instruction waited, each with the line of the program that needed the
    room."""
    if evictions:
        yield f"waited for memory, until {plural(len(evictions), 'eviction')} had made room:"
    for one in evictions[:_EVICTIONS_SHOWN]:
        needed = f"  for {one.location}" if one.location else ""
        yield f"   {_title(one, session)}  {status(one)}{needed}"
    if len(evictions) > _EVICTIONS_SHOWN:
        yield f"   and {len(evictions) - _EVICTIONS_SHOWN} more that ended earlier"


def _title(record: Record, session: int) -> str:
    """The title of a record, with its session if that is not `session`."""
    if record.caused_by in {0, session}:
        return title(record)
    return f"{title(record)} {'of' if record.session == record.caused_by else 'for'} session {record.caused_by}"


def _headline(story: Story, session: int) -> str:
    phases = [("blocked", story.blocked), ("queued", story.queued)]
    if story.record.finished:
        phases.append(("ran", story.ran))
    spent = ", ".join(f"{phase} {duration(ns)}" for phase, ns in phases if ns)
    what, where = _title(story.record, session), full_stream_name(story.record)
    return "  ".join(filter(None, (what, where, remark(story.record, story.until), f"({spent})" if spent else "")))


def _inside(explanation: Explanation) -> Iterator[str]:
    """The calls inside the instruction, if it is a timed run: those that took longest, in order."""
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
    """The `most` calls that took longest, in order."""
    chosen = sorted(range(len(calls)), key=lambda n: calls[n].ran, reverse=True)[:most]
    return [calls[n] for n in sorted(chosen)]


def _branches(story: Story, notes: Notes, session: int) -> Iterator[str]:
    shown = story.waits[:_WAITS_SHOWN]
    for wait in shown:
        last = wait is story.waits[-1]
        yield ("└─ " if last else "├─ ") + _branch(story.record, wait, notes, session)
        if wait.story is not None:
            indent = "   " if last else "│  "
            yield from (indent + line for line in _branches(wait.story, notes, session))
    if len(story.waits) > len(shown):
        yield f"└─ and {len(story.waits) - len(shown)} more that finished earlier"


def _branch(record: Record, wait: SourceWait, notes: Notes, session: int) -> str:
    if wait.story is None:
        return f"{_reasons(record, wait, None, notes)}: #{wait.source}, whose record is lost"
    source = wait.story.record
    rest = ("  <- critical" if wait.critical else "") + ("" if wait.story.expanded else "  ...")
    if not wait.edges:
        where = full_stream_name(source)
        return f"behind {_title(source, session)} on {where}: {duration(wait.waited)}{_spent(wait.story)}{rest}"
    waited = f"{duration(wait.waited)} for " if wait.waited else ""
    return f"{_reasons(record, wait, source, notes)}: {waited}{_headline(wait.story, session)}{rest}"


def _spent(story: Story) -> str:
    """The headline after the title and the stream."""
    return _headline(story, story.record.caused_by).removeprefix(
        f"{title(story.record)}  {full_stream_name(story.record)}"
    )


def _reasons(record: Record, wait: SourceWait, source: Record | None, notes: Notes) -> str:
    reasons = [_reason(edge, record, source) + notes.edge(edge, record, source) for edge in wait.edges[:_WAITS_SHOWN]]
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
    live, session = is_live(explanation.story.record), explanation.story.record.caused_by
    end = "until the trace was taken, not finished" if live else "to finished"
    part = f", {duration(explanation.compiling)} of it compiling kernels" if explanation.compiling else ""
    yield f"critical path, {duration(explanation.total)} from received {end}{part}:"
    yield from _lines(explanation)
    yield "      wait        run"
    steps = list(reversed(explanation.spans))
    half = _STEPS_SHOWN // 2
    hidden = range(half, len(steps) - half) if len(steps) > _STEPS_SHOWN else range(0)
    for number, (step, before) in enumerate(zip(steps, [None, *steps], strict=False)):
        if number not in hidden:
            yield _step(step, before, session)
            yield from _within(step.record, explanation.notes) if step is not steps[-1] else ()
        elif number == half:
            spent = duration(sum(span.gap + span.ran for span in steps[half:-half]))
            yield f"{'...':>10} {'...':>10}  ({len(hidden)} more, {spent} together)"


def _lines(explanation: Explanation) -> Iterator[str]:
    """The sums by line, if a line has several steps."""
    lines = explanation.lines
    if len(lines) == len(explanation.spans) or not any(line.location for line in lines):
        return
    yield "      wait        run   of all  steps"
    for line in lines[:_LINES_SHOWN]:
        more = "" if len(line.ops) <= _OPS_SHOWN else ", ..."
        what = f"{line.location or 'no line'}  {', '.join(line.ops[:_OPS_SHOWN])}{more}"
        yield f"{_sums([line], explanation.total)}  {what}"
    rest = lines[_LINES_SHOWN:]
    if rest:
        yield f"{_sums(rest, explanation.total)}  {plural(len(rest), 'more line')}"
    yield ""
    yield "step by step:"


def _sums(lines: Sequence[LineSum], total: int) -> str:
    gap, ran = (sum(times) for times in zip(*((line.gap, line.ran) for line in lines), strict=True))
    waited, took = (duration(ns) if ns else "" for ns in (gap, ran))
    share = f"{(gap + ran) / total:.0%}" if total else ""
    return f"{waited:>10} {took:>10} {share:>8} {sum(line.count for line in lines):>6,}"


def _within(record: Record, notes: Notes) -> Iterator[str]:
    """The calls that took much of the time of a run on the path."""
    calls = notes.calls(record)
    total = sum(call.ran for call in calls)
    for call in _longest(calls, _CALLS_OF_STEP_SHOWN):
        if call.ran * 10 >= total:
            yield f"{'':>10} {duration(call.ran):>10}    in it: {call.text}"


def _step(span: PathStep, before: PathStep | None, session: int) -> str:
    gap, ran = (duration(ns) if ns else "" for ns in (span.gap, span.ran))
    after = "" if before is None else f"after #{before.record.id}: {_after(before)}"
    earlier = span.record.finished - span.record.started - span.ran if span.record.finished and span.ran else 0
    cut = f"(and {duration(earlier)} before the path begins)" if earlier > 0 else ""
    ending = remark(span.record, 0)
    same = before is not None and before.record.location == span.record.location
    line = (
        "" if same else span.record.location.rpartition(CALLED_BY)[2]
    )  # only the program's line, without those of a library
    named = (_title(span.record, session), full_stream_name(span.record), ending, after, cut, line and f"[{line}]")
    what = "  ".join(filter(None, named))
    return f"{gap:>10} {ran:>10}  {what}"


def _after(before: PathStep) -> str:
    reasons = list(dict.fromkeys(edge_name(edge.reason, edge.copy) for edge in before.edges))[:3]
    return ", ".join(reasons) or _behind(before.record)


def _behind(source: Record | None) -> str:
    on_control = source is not None and source.stream.endswith("/control")
    return "behind it on the driving thread" if on_control else "behind it on the stream"
