"""Notes about runs in an explanation: the run of an instruction, the steps at the ends of an edge, the calls inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....model.reason import Reason
from ...record import CallRecord, EdgeRecord, Record
from ..inside.insides import call_name
from ..inside.steps import Opener, SegmentSteps, copies_of, step_record
from ..recorded.derived import operands_text
from ..recorded.records import Records
from ..recorded.text import plural

_LINES_SHOWN = 3


class NotedCall(NamedTuple):
    """A call inside a run: the last of its steps, how long the call took, and a text for people."""

    step: int
    ran: int
    text: str


class Notes:
    """Notes about the runs of a trace."""

    def __init__(self, trace: Records) -> None:
        self._trace = trace
        self._opener = Opener(trace)

    def about(self, record: Record) -> list[str]:
        """The run to which an instruction belongs, and the lines of its steps."""
        sentences = []
        run, segment = self._trace.run_of(record), self._trace.segment_title(record)
        if run is not None and run.first != run.last:
            end = f" to #{run.last}" if run.last else ", which goes on"
            which = f"{segment} of" if segment else "of"
            sentences.append(
                f"{which} the run {self._trace.run_name(run)}{end}, called at {run.location or 'no known line'}"
            )
        form = self._form(record)
        if form is not None and record.part is not None:
            steps = form.program.steps[record.part.first : record.part.last + 1]
            lines = list(dict.fromkeys(step.location for step in steps if step.location))
            if lines:
                sentences.append(f"its steps are at {_listed(lines)}")
        return sentences

    def edge(self, edge: EdgeRecord, record: Record, source: Record | None) -> str:
        """The values and steps at the ends of an edge, as a text to append to the edge's name; empty if no end is a
        run."""
        needed = self._operand(record, edge.copy)
        used = self._step(record, edge.copy, writes=edge.reason != Reason.RAW, last=False)
        made = "" if source is None else self._step(source, edge.copy, writes=edge.reason != Reason.WAR, last=True)
        parts = (needed, f"for {used}" if used else "", f"after {made}" if made else "")
        return "".join(f", {part}" for part in parts if part)

    def _form(self, record: Record) -> SegmentSteps | None:
        return None if record.part is None else self._opener.form(record.part)

    def _operand(self, record: Record, copy: int) -> str:
        """The role of a copy in a routine: `its parameter params.w`, or `its value %7`."""
        form = self._form(record)
        if form is None or form.segment is None:
            return ""
        variable = next((v for v, each in copies_of(record, form.segment).items() if each == copy), None)
        if variable is None:
            return ""
        program = form.program
        sources = (*program.parameters, *program.captured)
        if variable >= len(sources):
            return f"its value %{variable}"
        kind = "parameter" if variable < len(program.parameters) else "captured tensor"
        return f"its {kind} {sources[variable].name or f'%{variable}'}"

    def _step(self, record: Record, copy: int, *, writes: bool, last: bool) -> str:
        """The first, or the last, step of a run that reads or writes a copy: `step 5 subtract at train.py:6`."""
        form = self._form(record)
        if form is None or form.segment is None:
            return ""
        uses = form.lasts if last else form.firsts
        for variable, each in copies_of(record, form.segment).items():
            if each == copy and (variable, writes) in uses:
                n = uses[variable, writes]
                step = form.program.steps[n]
                return f"step {n} {step.op}" + (f" at {step.location}" if step.location else "")
        return ""

    def calls(self, record: Record) -> list[NotedCall]:
        """The calls inside a run, in order; empty if the run was not timed."""
        form = self._form(record) if record.stamps else None
        if form is None:
            return []
        timed = self._opener.insides.calls(record)
        return [
            NotedCall(each.call.steps[-1], each.finished - each.started, self._text(form, record, each.call))
            for each in timed
        ]

    def _text(self, form: SegmentSteps, record: Record, call: CallRecord) -> str:
        steps = [form.program.steps[n] for n in call.steps]
        numbers = " ".join(f"/{n}" for n in call.steps[:4]) + (" ..." if len(steps) > 4 else "")
        if len(steps) > 1:
            ops = ", ".join(step.op for step in steps[:4]) + (f" and {len(steps) - 4} more" if len(steps) > 4 else "")
            return "  ".join(filter(None, (f"{numbers} {call_name(call)} of {ops}", steps[-1].location)))
        one = step_record(form, record, call.steps[0], (0, 0))
        return "  ".join(filter(None, (f"{numbers} {call_name(call)} {operands_text(one)}".rstrip(), one.location)))

    def chain(self, record: Record) -> list[NotedCall]:
        """The calls of the longest chain of dependences inside a run."""
        form, calls = self._form(record), self.calls(record)
        if form is None:
            return []
        doing = {n: index for index, each in enumerate(self._opener.insides.calls(record)) for n in each.call.steps}
        ends: list[tuple[int, int]] = []  # (time of the longest chain that ends there, the call before in it)
        for index, each in enumerate(self._opener.insides.calls(record)):
            needs = self._needs(form, each.call)
            before = [doing[n] for n in needs if n in doing and doing[n] < index]
            best = max(before, key=lambda other: ends[other][0], default=-1)
            ends.append((calls[index].ran + (ends[best][0] if best >= 0 else 0), best))
        index = max(range(len(ends)), key=lambda n: ends[n][0])
        longest = []
        while index >= 0:
            longest.append(calls[index])
            index = ends[index][1]
        return longest[::-1]

    def _needs(self, form: SegmentSteps, call: CallRecord) -> set[int]:
        """The computed steps on which a call depends. A view counts as the value of which it is a view."""
        needed: set[int] = set()
        pending = list(call.steps)
        done = set(pending)
        computed = {n for each in (form.segment.calls if form.segment else ()) for n in each.steps}
        while pending:
            for n, _ in form.waits.get(pending.pop(), ()):
                if n in computed:
                    needed.add(n)
                elif n not in done:
                    pending.append(n)
                done.add(n)
        return needed - set(call.steps)

    def plain(self, record: Record) -> dict[str, object]:
        """The run's title, the calls inside, and the steps of the longest chain, for JSON."""
        inside = [call._asdict() for call in self.calls(record)]
        return {
            "run": self._trace.run_title(record),
            "inside": inside,
            "chain": [call.step for call in self.chain(record)] if inside else [],
        }


def _listed(lines: Sequence[str]) -> str:
    more = f" and {plural(len(lines) - _LINES_SHOWN, 'more line')}" if len(lines) > _LINES_SHOWN else ""
    return ", ".join(lines[:_LINES_SHOWN]) + more
