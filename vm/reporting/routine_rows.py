"""What has become of a routine: its pieces, the memory of its segments, and where each of its values lies, and why."""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.programs.program import Program
from ..model.linked import Linked
from ..model.session import VmSession
from ..routines.instruction import Segment
from ..routines.recipe import ARENA, Place


def routine_row(session: VmSession, id_: int) -> dict[str, Any]:
    """A routine of the session as plain values. ProtocolError if there is none with that id."""
    routine = session.routines.get(id_)
    if isinstance(routine, TensordError):
        raise routine.reraisable()
    if routine is None:
        raise ProtocolError(f"there is no routine {id_}")
    program = routine.program
    pieces = [piece_row(routine, piece) for piece in routine.pieces or ()]
    return {
        "program": program.digest,
        "devices": list(routine.devices),
        "ops": len(program.steps),
        "runs_op_by_op": routine.runs,
        "compiled": routine.pieces is not None,
        "pieces": pieces,
        "values": value_rows(routine),
    }


def piece_row(routine: Linked, piece: range) -> dict[str, Any]:
    """One piece: a segment, or a step that runs by itself."""
    segment = routine.segments.get(piece.start)
    row: dict[str, Any] = {"first": piece.start, "last": piece.stop - 1, "how": "op by op", "op": ""}
    if isinstance(segment, Segment):
        recipe = segment.recipe
        fusions = [list(fusion.steps) for fusion in recipe.fusions]
        row |= {"how": "segment", "device": segment.plan.device.name, "calls": len(recipe.calls)}
        row |= {"arena": recipe.arena, "fusions": fusions}
    elif len(piece) == 1:
        row["op"] = routine.program.steps[piece.start].op
    elif piece.start not in routine.segments:
        row["how"] = "segment, compiled at its next run"
    return row


def value_rows(routine: Linked) -> list[list[str]]:
    """Memory mode and reason of each value, in order."""
    program = routine.program
    found = [["on device", reason_outside(program, value)] for value in range(len(program.metas))]
    for segment in routine.segments.values():
        if isinstance(segment, Segment):
            for value, place in segment.recipe.places.items():
                if value >= program.inputs:
                    found[value] = inside(segment, value, place)
            for fusion in segment.recipe.fusions:
                for value in fusion.virtual:
                    found[value] = ["virtual", f"between steps {fusion.steps[0]} and {fusion.steps[-1]} of one fusion"]
    return found


def reason_outside(program: Program, value: int) -> str:
    """Why a value is a tensor on a device."""
    if value < len(program.parameters):
        return "a parameter"
    if value < program.inputs:
        return "captured"
    return "a result" if value in program.results else "its step runs by itself"


def inside(segment: Segment, value: int, place: Place) -> list[str]:
    """Memory mode and reason of a value of a segment."""
    recipe = segment.recipe
    if value in recipe.bases:
        where = "local" if place.slot == ARENA else "on device"
        return [where, f"a view of %{recipe.bases[value]}"]
    if place.slot == ARENA:
        return ["local", f"in the arena, at {place.offset}"]
    if value in segment.program.results:
        return ["on device", "a result"]
    made = place.slot >= len(recipe.reads) + len(recipe.written)
    return ["on device", "used by a later piece" if made else "written in place"]
