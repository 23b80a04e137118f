"""Describes a routine: the effect of its passes, its pieces with their compiled segments, where each value lies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.programs.fusion import MIN_BYTES
from ....interpreter.programs.passes.table import FUSION, IN_PLACE, MEMORY_PLAN
from ....interpreter.programs.program import Program
from ....interpreter.programs.rows import why_unfused
from ...admission.segments import why_alone
from ...model.linked import SessionProgram
from ...model.session import VmSession
from ...routines.compiling.recipe import ARENA, BufferSlice, Recipe
from ...routines.running.segment import CompiledSegment


def routine_row(session: VmSession, id_: int, *, source: bool = False) -> dict[str, Any]:
    """A routine of the session as plain values.

    ProtocolError if the session has no routine with that id. `source`: include the source of its generated kernels.
    """
    routine = session.routines.get(id_)
    if isinstance(routine, TensordError):
        raise routine.reraisable()
    if routine is None:
        raise ProtocolError(f"unknown routine {id_}")
    current = routine if routine.improved is None else routine.improved  # what the next run uses
    return {
        "program": routine.program.digest,
        "devices": list(routine.devices),
        "ops": len(routine.program.steps),
        "passes": pass_rows(routine, current),
        "without_passes": 0 if current is routine else routine.runs,
        "runs_op_by_op": current.runs,
        "compiled": current.pieces is not None,
        "pieces": piece_rows(session, current, source=source),
        "values": value_rows(current),
        "metas": ["?" if meta is None else str(meta) for meta in current.program.metas],
    }


def pass_rows(routine: SessionProgram, current: SessionProgram) -> list[dict[str, Any]]:
    """The effect of each pass: a count before it and after it, and what is counted (`of`), such as ops or bytes.

    The rows of passes inside segments count only compiled segments.
    """
    rows = [pass_row(each.name, each.before, each.after, "ops", each.changed) for each in routine.applied]
    recipes = [segment.recipe for segment in current.segments.values() if isinstance(segment, CompiledSegment)]
    if not recipes:
        return rows
    calls = sum(len(recipe.calls) for recipe in recipes)
    fusions = [fusion for recipe in recipes for fusion in recipe.fusions]
    parts, forwarded = sum(recipe.parts for recipe in recipes), sum(recipe.forwarded for recipe in recipes)
    unshared, arena = sum(recipe.unshared for recipe in recipes), sum(recipe.arena for recipe in recipes)
    inside_segments = (
        (FUSION, calls + sum(len(fusion.steps) - 1 for fusion in fusions), calls, "calls"),
        (IN_PLACE, parts + forwarded, parts, "values with memory of their own"),
        (MEMORY_PLAN, unshared, arena, "bytes"),
    )
    return rows + [
        pass_row(name, before, after, of, before != after)
        for name, before, after, of in inside_segments
        if name in routine.passes
    ]


def pass_row(name: str, before: int, after: int, of: str, changed: bool) -> dict[str, Any]:
    return {"pass": name, "before": before, "after": after, "of": of, "changed": changed}


def piece_rows(session: VmSession, routine: SessionProgram, *, source: bool) -> list[dict[str, Any]]:
    """The rows of all pieces, in order. The row of a control-flow step contains the pieces of its blocks."""
    return [piece_row(session, routine, piece, source=source) for piece in routine.pieces or ()]


def piece_row(session: VmSession, routine: SessionProgram, piece: range, *, source: bool) -> dict[str, Any]:
    """The row of a piece: a segment, or a single step."""
    segment = routine.segments.get(piece.start)
    row: dict[str, Any] = {"first": piece.start, "last": piece.stop - 1, "how": "op by op", "op": ""}
    if isinstance(segment, CompiledSegment):
        recipe = segment.recipe
        fusions = [list(fusion.steps) for fusion in recipe.fusions]
        row |= {"how": "segment", "device": segment.plan.device.name, "calls": len(recipe.calls)}
        row |= {"arena": recipe.arena, "fusions": fusions, "graph": graph_row(segment)}
        row["turned_away"] = dict(segment.turned_away)
        if source:
            row["kernels"] = list(kernel_rows(recipe))
    elif len(piece) == 1:
        row |= {"op": routine.program.steps[piece.start].op, "why": why_alone(session, routine, piece.start)}
        blocks = (block.routine for block in routine.nested.get(piece.start, ()))
        row["blocks"] = [piece_rows(session, block.improved or block, source=source) for block in blocks]
    elif piece.start in routine.segments:
        row["why"] = "a step writes in place over memory that holds another value"
    else:
        row["how"] = "segment, to be compiled at its next run"
    return row


def kernel_rows(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """The generated kernels of a segment's fusions."""
    fusions = {fusion.steps[-1]: fusion for fusion in recipe.fusions}
    for call in recipe.calls:
        kernel: Any = call.kernel
        fusion, text = fusions.get(call.step), getattr(kernel, "source", "")
        if text and fusion is not None:
            yield {"steps": list(fusion.steps), "compiled": kernel.is_ready(), "source": text}


def graph_row(segment: CompiledSegment) -> dict[str, Any]:
    """The graph of a segment's launches, or why it has none; empty for a device without graphs."""
    if segment.graph is not None:
        return segment.graph.row()
    if segment.plan.device.backend.graphs:
        return {"why": "its arena has more than an eighth of the device's memory"}
    return {}


def value_rows(routine: SessionProgram) -> list[list[str]]:
    """The memory mode of each value, "on device", "local" or "virtual", and the reason; in order."""
    program = routine.program
    rows = [["on device", reason_outside(program, value)] for value in range(len(program.metas))]
    for segment in routine.segments.values():
        if isinstance(segment, CompiledSegment):
            for value, buffer_slice in segment.recipe.buffer_slices.items():
                if value >= program.inputs:
                    rows[value] = mode_inside(segment, value, buffer_slice)
            for fusion in segment.recipe.fusions:
                for value in fusion.virtual:
                    rows[value] = ["virtual", f"between steps {fusion.steps[0]} and {fusion.steps[-1]} of one fusion"]
            add_reasons_unfused(program, segment.recipe, rows)
    return rows


def add_reasons_unfused(program: Program, recipe: Recipe, rows: list[list[str]]) -> None:
    """Add to the reasons of the results of large reductions why these are not in a fusion."""
    for step in (program.steps[n] for n in recipe.steps):
        operand = program.metas[step.operands[0]] if step.operands and step.operands[0] >= 0 else None
        if operand is not None and operand.nbytes >= MIN_BYTES and (why := why_unfused(program, step)):
            rows[step.first][1] += f"; not in a fusion: {why}"


def reason_outside(program: Program, value: int) -> str:
    """Why a value outside of segments lies on a device."""
    if value < len(program.parameters):
        return "a parameter"
    if value < program.inputs:
        return "captured"
    return "a result" if value in program.results else "its step runs by itself"


def mode_inside(segment: CompiledSegment, value: int, buffer_slice: BufferSlice) -> list[str]:
    """The memory mode of a value of a segment, and the reason."""
    recipe = segment.recipe
    if value in recipe.bases:
        where = "local" if buffer_slice.slot == ARENA else "on device"
        return [where, f"a view of %{recipe.bases[value]}"]
    if buffer_slice.slot == ARENA:
        return ["local", f"in the arena, at {buffer_slice.offset}"]
    if value in segment.program.results:
        return ["on device", "a result"]
    made = buffer_slice.slot >= len(recipe.reads) + len(recipe.written)
    return ["on device", "used by a later piece" if made else "written in place"]
