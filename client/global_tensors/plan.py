"""Plans: the layouts of the operands and results of a call on global tensors, chosen once for each kind of call.

An op's rule lists signatures; one is chosen for each dimension of the grid. The choice minimises the time of boxing;
then the number of boxed operands; then the position in the list. Results that are addends have to be summed eventually.
That time counts, too, if operands are boxed, but not if all operands fit: then nothing moves. Candidates that cannot be
inferred on the shares (a maximum of an empty part) are skipped. In the last candidate, all parts are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...interpreter.errors import MetadataError
from ...interpreter.layouts.layout import BROADCAST, Layout, Partial, Split
from ...interpreter.layouts.placement import Placement
from ...interpreter.layouts.rules import LayoutSignature, OpCall, divided, signatures, whole
from ...interpreter.schema.infer import InferCache, infer_once
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ...interpreter.types.meta import Meta, OperandMeta
from .boxing.route import route, seconds
from .boxing.steps import BoxingStep, Reduction
from .form import Form


class CallKind(NamedTuple):
    """A kind of call. `operands`: the forms of global tensors, and the types of numbers; `out`: forms of targets."""

    op: OpDef
    operands: tuple[Any, ...]
    attributes: FrozenAttributes
    placement: Placement
    out: tuple[Form, ...] | None

    @property
    def metas(self) -> tuple[OperandMeta | None, ...]:
        """The operands' metas."""
        return tuple([one.meta if isinstance(one, Form) else one for one in self.operands])


class GlobalPlan(NamedTuple):
    """The plan for a kind of call. `operands`: the form to which each is boxed, None for a number; `attributes`: those
    of each part's call; `outputs`: forms of the results; `direct`: the parts' calls may write to the targets' parts."""

    asked: CallKind
    operands: tuple[Form | None, ...]
    attributes: tuple[FrozenAttributes, ...]
    outputs: tuple[Form, ...]
    direct: bool

    @property
    def moves(self) -> bool:
        """Return whether bytes go from one device to another."""
        pairs = [*zip(self.asked.operands, self.operands, strict=True)]
        if self.asked.out is not None and not self.direct:
            pairs += zip(self.outputs, self.asked.out, strict=True)
        boxed = ((old, new) for old, new in pairs if new is not None and old is not new)
        return any(any(step.received) for old, new in boxed for step in route(old, new))

    @property
    def boxes(self) -> bool:
        """Return whether any operand or result is boxed."""
        boxed = self.asked.out is not None and not self.direct
        return boxed or any(
            new is not None and old is not new for old, new in zip(self.asked.operands, self.operands, strict=True)
        )


class Candidate(NamedTuple):
    """One way to issue a call: layouts of operands and results, and the calls of the parts."""

    operands: tuple[Layout | None, ...]
    outputs: tuple[Layout, ...]
    calls: tuple[OpCall, ...]


def planned(asked: CallKind, outputs: tuple[Meta | None, ...], cache: InferCache) -> GlobalPlan:
    """The plan for such calls, whose results have these metas."""
    for candidate in sorted(candidates(asked, outputs), key=lambda one: cost(asked, one, outputs)):
        plan = tried(asked, candidate, outputs, cache)
        if plan is not None:
            return plan
    raise AssertionError("the last candidate, in which each device computes the whole op, always fits")


def alternatives(asked: CallKind) -> list[Candidate]:
    """All candidates, in the order of their cost."""
    outputs = infer_once(asked.op, asked.metas, asked.attributes)
    return sorted(candidates(asked, outputs), key=lambda one: cost(asked, one, outputs))


def candidates(asked: CallKind, outputs: tuple[Meta | None, ...]) -> Iterator[Candidate]:
    """All candidates of the op's rule, in the listed order."""
    call = OpCall(asked.metas, dict(asked.attributes), outputs)  # type: ignore[arg-type]
    for chosen, calls in chains(asked, (), [call]):
        operands = tuple(
            None if isinstance(meta, type) else tuple([one.inputs[n] or BROADCAST for one in chosen])
            for n, meta in enumerate(asked.metas)
        )
        results = tuple(tuple([one.outputs[n] for one in chosen]) for n in range(len(outputs)))
        yield Candidate(operands, results, tuple(calls))


def chains(
    asked: CallKind, chosen: tuple[LayoutSignature, ...], calls: list[OpCall]
) -> Iterator[tuple[tuple[LayoutSignature, ...], list[OpCall]]]:
    """Signatures, one for each dimension of the grid, and the resulting calls of the parts."""
    grid = asked.placement.grid
    if len(chosen) == len(grid):
        yield chosen, calls
        return
    parts = grid[len(chosen)]
    for one in (whole(calls[0]),) if None in asked.metas else signatures(asked.op, calls, parts):
        yield from chains(asked, (*chosen, one), divided(calls, one, parts))


def cost(asked: CallKind, candidate: Candidate, outputs: Sequence[Meta | None]) -> tuple[float, int]:
    """The seconds of boxing, and the number of boxed values."""
    time, count = 0.0, 0
    for given, layout in zip(asked.operands, candidate.operands, strict=True):
        if layout is not None and given.layout != layout:
            time += seconds(given, given.laid(layout))
            count += 1
    for target, layout, meta in zip(asked.out or (), candidate.outputs, outputs, strict=False):
        if target.layout != layout:
            time += seconds(Form.of(meta, asked.placement, layout), target)
            count += 1
    return time + (count and pending(asked, candidate, outputs)), count


def pending(asked: CallKind, candidate: Candidate, outputs: Sequence[Meta | None]) -> float:
    """The seconds of later sums of results that are addends, to slices if possible."""
    if asked.out is not None:
        return 0.0
    return sum(
        min(one.seconds for one in reductions(Form.of(meta, asked.placement, layout)))
        for meta, layout in zip(outputs, candidate.outputs, strict=True)
        if any(isinstance(atom, Partial) for atom in layout)
    )


def reductions(form: Form) -> Iterator[BoxingStep]:
    """The steps that may replace addends."""
    for dim, atom in enumerate(form.layout):
        if isinstance(atom, Partial):
            yield Reduction(form, form.at(dim, BROADCAST), dim)
            if form.meta is not None and form.meta.ndim:
                yield Reduction(form, form.at(dim, Split(0)), dim)


def tried(
    asked: CallKind, candidate: Candidate, outputs: Sequence[Meta | None], cache: InferCache
) -> GlobalPlan | None:
    """The plan of a candidate; None if the op cannot be inferred on the shares."""
    pairs = zip(asked.operands, candidate.operands, strict=True)
    operands = tuple(None if layout is None else given.laid(layout) for given, layout in pairs)
    made = tuple(
        Form.of(meta, asked.placement, layout) for meta, layout in zip(outputs, candidate.outputs, strict=True)
    )
    try:
        attributes = tuple(frozen(asked, call, cache) for call in candidate.calls)
    except MetadataError:
        if all(form is None or all(atom == BROADCAST for atom in form.layout) for form in operands):
            raise
        return None
    direct = asked.out is not None and all(
        target.layout == form.layout for target, form in zip(asked.out, made, strict=True)
    )
    return GlobalPlan(asked, operands, attributes, made, direct)


def frozen(asked: CallKind, call: OpCall, cache: InferCache) -> FrozenAttributes:
    """The attributes of one part's call. MetadataError if the op does not take the part."""
    whole_attributes = dict(asked.attributes)
    attributes = asked.attributes if call.attributes == whole_attributes else asked.op.freeze(call.attributes)
    outputs = cache.infer(asked.op, call.metas, attributes)
    if outputs != call.outputs:
        raise AssertionError(
            f"{asked.op.name}: a part's result is {outputs}, not {call.outputs}: its layout rule is wrong"
        )
    return attributes
