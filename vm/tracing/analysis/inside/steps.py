"""The steps inside a run as records, and where the value of each step lies.

The record of a step has an id that no instruction has, which `text.name` shows as `#33/4`: step 4 of the run #33.
Its edges follow from the program: the step reads what another step made (RAW), or overwrites what other steps read
(WAR) or made (WAW).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .....interpreter.opcodes import Opcode
from ....model.reason import Reason
from ...record import (
    ARENA,
    FILL,
    FUSED,
    ArgumentRecord,
    EdgeRecord,
    MetaRecord,
    OperandKind,
    PartRecord,
    Record,
    SegmentRecord,
)
from ..recorded.records import Records
from ..recorded.text import inner_id
from .insides import Insides

if TYPE_CHECKING:
    from .....interpreter.programs.program import Program, Step
    from .....interpreter.types.meta import OperandMeta

# (copy or variable, whether the step writes it) -> a step
Uses = dict[tuple[int, bool], int]


class Inner(NamedTuple):
    """A step of a run: its number, where its value lies, and the number of the fusion that computes it (0: no
    fusion)."""

    run: Record
    step: int
    memory: str
    fusion: int


def inner_dict(inner: Inner | None) -> dict[str, object] | None:
    """The fields of `Inner` for JSON, with the run's id; None if the node is not a step."""
    return None if inner is None else inner._asdict() | {"run": inner.run.id}


class OpenedRun(NamedTuple):
    """The steps of a run, in order.

    `firsts`, `lasts`: for each copy, the ids of the first and the last step that use it.
    """

    steps: tuple[tuple[Record, Inner], ...]
    firsts: Uses
    lasts: Uses


class SegmentSteps(NamedTuple):
    """Facts about a segment that all its runs share.

    `waits`: for each step, the earlier steps on which it depends, and why; `firsts` and `lasts`: by variable, the
    first and the last step that use it.
    """

    program: Program
    segment: SegmentRecord | None
    waits: Mapping[int, tuple[tuple[int, Reason], ...]]
    memory: Mapping[int, str]
    fusions: Mapping[int, int]
    firsts: Uses
    lasts: Uses


class Opener:
    def __init__(self, trace: Records) -> None:
        self.insides = Insides(trace)
        self._forms: dict[PartRecord, SegmentSteps | None] = {}

    def opened(self, record: Record) -> OpenedRun | None:
        """The steps inside an instruction; None if it is not a run, or its program is not in the trace."""
        part = record.part
        form = None if part is None else self.form(part)
        if part is None or form is None:
            return None
        times = {each.call.steps[-1]: each[1:] for each in self.insides.calls(record) if each.call.op != FILL}
        steps = []
        for n in range(part.first, part.last + 1):
            step = step_record(form, record, n, times.get(n, (0, 0)))
            steps.append((step, Inner(record, n, form.memory.get(n, ""), form.fusions.get(n, 0))))
        if form.segment is None:
            return OpenedRun(tuple(steps), {}, {})
        copies = copies_of(record, form.segment)
        return OpenedRun(tuple(steps), by_copies(record, form.firsts, copies), by_copies(record, form.lasts, copies))

    def form(self, part: PartRecord) -> SegmentSteps | None:
        """Facts about these steps of a routine; None if the trace does not have its program."""
        if part not in self._forms:
            program = self.insides.program(part.routine)
            known = program is not None and part.last < len(program.steps)
            self._forms[part] = self._form(program, part) if known and program is not None else None
        return self._forms[part]

    def _form(self, program: Program, part: PartRecord) -> SegmentSteps:
        segment = self.insides.segment_of(part)
        steps = range(part.first, part.last + 1)
        memory = {} if segment is None else memory_of(program, segment)
        fusions = {} if segment is None else fusions_of(segment)
        return SegmentSteps(program, segment, waits_of(program, steps), memory, fusions, *uses_of(program, steps))


def step_record(form: SegmentSteps, run: Record, position: int, times: tuple[int, int]) -> Record:
    from .....interpreter.programs.program import NON_OP_STEPS
    from .....interpreter.schema.opdef import find
    from ....model.signature import attributes_of

    program = form.program
    step = program.steps[position]
    types: list[OperandMeta | None] = [program.number_types[~o] if o < 0 else program.metas[o] for o in step.operands]
    started, finished = times
    return run._replace(
        id=inner_id(run.id, position),
        opcode=Opcode.CALL.value,
        op=step.op,
        operands=(),
        edges=tuple([EdgeRecord(inner_id(run.id, n), reason.value, 0, True) for n, reason in form.waits[position]]),
        started=started,
        finished=finished,
        location=step.location or "",
        error="",
        inputs=tuple(map(meta_record, types)),
        outputs=tuple(map(meta_record, step.results)),
        attributes="" if step.op in NON_OP_STEPS else attributes_of(find(step.op), step.attributes),
        work=0,
        part=None,
        stamps=(),
    )


def meta_record(meta: OperandMeta | None) -> MetaRecord:
    """Convert a meta, or the type of a number, to a record."""
    from ....model.signature import plain

    return MetaRecord(*plain(meta))


def waits_of(program: Program, steps: range) -> dict[int, tuple[tuple[int, Reason], ...]]:
    """For each of these steps, the earlier steps on which it depends, and why."""
    makers: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    waits: dict[int, tuple[tuple[int, Reason], ...]] = {}
    for n in steps:
        step = program.steps[n]
        sources: dict[int, Reason] = {}
        for value in step.operands:
            if value in makers:
                sources[makers[value]] = Reason.RAW
        for value in step.into or ():
            if value in makers:
                sources.setdefault(makers[value], Reason.WAW)
            for reader in readers.get(value, ()):
                sources.setdefault(reader, Reason.WAR)
        for value in step.operands:
            readers.setdefault(value, []).append(n)
        makers |= dict.fromkeys(range(step.first, step.first + len(step.results)), n)
        waits[n] = tuple(sorted(sources.items()))
    return waits


def uses_of(program: Program, steps: range) -> tuple[Uses, Uses]:
    """For each variable, and for reads and writes separately, the first and the last step that use it."""
    firsts: Uses = {}
    lasts: Uses = {}
    for n in steps:
        for use in used_by(program, program.steps[n]):
            firsts.setdefault(use, n)
            lasts[use] = n
    return firsts, lasts


def used_by(program: Program, step: Step) -> Iterator[tuple[int, bool]]:
    """The variables that a step uses, each with whether the step writes it."""
    for value in step.operands:
        if value >= 0:
            yield program.variables[value], False
    for value in range(step.first, step.first + len(step.results)):
        yield program.variables[value], True


def by_copies(run: Record, uses: Uses, copies: Mapping[int, int]) -> Uses:
    """Change the keys from variables to copies, and the steps to their ids."""
    known = [(copies[variable], writes, n) for (variable, writes), n in uses.items() if variable in copies]
    return {(copy, writes): inner_id(run.id, n) for copy, writes, n in known}


def copies_of(record: Record, segment: SegmentRecord) -> dict[int, int]:
    """The copy of each variable among a run's operands.

    A run lists a copy once, even if several variables have it. In that case, the copies of variables that are only read
    are unknown.
    """
    reads = [operand.copy for operand in record.operands if operand.kind == OperandKind.CONST]
    writes = [operand.copy for operand in record.operands if operand.kind != OperandKind.CONST]
    found = dict(zip((*segment.written, *segment.made), writes, strict=False))
    if len(reads) == len(segment.reads) + len(segment.written):
        found |= dict(zip(segment.reads, reads, strict=False))
    return found


def memory_of(program: Program, segment: SegmentRecord) -> dict[int, str]:
    """Where each step's value lies in memory, as text."""
    texts: dict[int, str] = {}
    for call in segment.calls:
        if call.op != FILL:
            texts |= dict.fromkeys(call.steps, "virtual")
            makers = {program.steps[n].first: n for n in call.steps}
            texts |= {
                makers[result.value]: memory_text(program, segment, result)
                for result in call.gives
                if result.value in makers  # only the first of several results
            }
    for n in range(segment.first, segment.last + 1):
        if n not in texts:
            texts[n] = f"a view of %{program.steps[n].operands[0]}"
    return texts


def memory_text(program: Program, segment: SegmentRecord, result: ArgumentRecord) -> str:
    """Where a value lies: `local, at 64` or `on device, written in place`, for example."""
    value, buffer_slice = result
    if buffer_slice is None or buffer_slice.slot == ARENA:
        return f"local, at {buffer_slice.offset if buffer_slice is not None else 0}"
    if value in program.results:
        return "on device, a result"
    written = buffer_slice.slot < len(segment.reads) + len(segment.written)
    return "on device, written in place" if written else "on device, used later"


def fusions_of(segment: SegmentRecord) -> dict[int, int]:
    """Step -> the number of its fusion, from 1 on."""
    fusions = [call for call in segment.calls if call.op == FUSED]
    return {n: number for number, call in enumerate(fusions, 1) for n in call.steps}
