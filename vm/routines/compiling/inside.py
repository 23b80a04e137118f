"""The trace's record of a compiled segment: plain values, without kernels.

`tracing.analysis.checks.segment_check` checks the records.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....interpreter.programs.program import Program
from ...tracing.record import FILL, FUSED, ArgumentRecord, BufferSliceRecord, CallRecord, SegmentRecord
from .recipe import BufferSlice, KernelStep, Recipe, fill


def segment_record(program: Program, recipe: Recipe) -> SegmentRecord:
    fusions = {fusion.steps[-1]: fusion for fusion in recipe.fusions}
    calls = []
    for call in recipe.calls:
        fusion = fusions.get(call.step)
        if call.kernel is fill:
            calls.append(call_record(FILL, (call.step,), call.reads[0], call.reads[0], call))
        elif fusion is not None:
            calls.append(call_record(FUSED, fusion.steps, fusion.inputs, call.results, call))
        else:
            operands = program.steps[call.step].operands
            calls.append(call_record(call.plan.op.name, (call.step,), operands, call.results, call))
    head = (recipe.steps.start, recipe.steps.stop - 1, recipe.reads, recipe.written, recipe.made, recipe.arena)
    return SegmentRecord(*head, tuple(calls))


def call_record(
    op: str, steps: tuple[int, ...], given: Iterable[int], made: Iterable[int], call: KernelStep
) -> CallRecord:
    """The record of a call with its operands (`given`) and its results (`made`)."""
    slices = [buffer_slice_record(argument) for argument in call.arguments]
    arguments = [ArgumentRecord(*pair) for pair in zip((*given, *made), slices, strict=True)]
    count = len(call.arguments) - len(call.results)
    return CallRecord(op, steps, tuple(arguments[:count]), tuple(arguments[count:]), call.reads)


def buffer_slice_record(argument: BufferSlice | int) -> BufferSliceRecord | None:
    """The record of a buffer slice; None for a number's slot."""
    if isinstance(argument, int):
        return None
    meta = argument.meta
    return BufferSliceRecord(
        argument.slot, argument.offset, argument.strides, meta.shape, meta.plain[1], argument.whole
    )
