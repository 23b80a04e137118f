"""Explanations of calls on global tensors and of collectives: the bytes that would move, and why. A function is
captured, and its calls are noted; nothing runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...interpreter.collectives.request import ResolvedRequest as Collective
from ...interpreter.layouts.layout import Partial, user_notation
from ...interpreter.types.sizes import size
from ..locations.locations import user_line
from .boxing.links import bandwidth
from .boxing.route import route
from .boxing.steps import BoxingStep
from .form import Form
from .plan import CallKind, GlobalPlan, alternatives


class RowNotes(threading.local):
    """The rows that this thread notes; None: it notes none."""

    rows: list[dict[str, Any]] | None = None


ROW_NOTES: Final = RowNotes()
AS_IT_SAYS: Final = "as the program says"


class BytesExplanation:
    """The bytes that a function's calls on global tensors and its collectives move. `rows` has plain data for each
    call; as text, an explanation is a table.

    A row: `op`, `line`, `inputs` and `outputs` (layouts; for a collective of plain tensors the devices), `moves`,
    `bytes` (of all moves), `seconds` (at the bandwidths by which routes are chosen), and `why`. A move: `what`
    (all_gather, all_reduce, reduce_scatter, all_to_all, broadcast, send; slice and zeros move nothing), `of` (an
    operand by number, "its operands", or "result"), `before` and `after` (layouts), `devices`, `bytes`, and
    `bandwidth`, in bytes per second; `by`, the library that carries out a collective of plain tensors, "" for none.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)

    @property
    def bytes(self) -> int:
        """The bytes that go from one device to another, in total."""
        return sum(row["bytes"] for row in self.rows)

    def __str__(self) -> str:
        cells = [("line", "op", "layouts", "moves", "why"), *map(cells_of, self.rows)]
        widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*map(str.rstrip, lines), f"{size(self.bytes)} in all"])

    def __repr__(self) -> str:
        return f"<explanation of {len(self.rows)} calls, which move {size(self.bytes)}>"


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as texts."""
    moves = "; ".join(map(text_of, row["moves"]))
    layouts = f"{', '.join(row['inputs'])} -> {', '.join(row['outputs'])}"
    return row["line"] or "", row["op"], layouts, moves or "nothing", row["why"]


def text_of(move: dict[str, Any]) -> str:
    """A move as text."""
    nbytes, library = move["bytes"], move.get("by")
    return (
        f"{move['what']} of {move['of']}"
        + (f", {size(nbytes)}" if nbytes else "")
        + (f", by {library}" if library else "")
    )


def note(plan: GlobalPlan) -> None:
    """Note a call, if this thread notes calls."""
    if ROW_NOTES.rows is None:
        return
    asked = plan.asked
    moves = [
        move
        for position, (old, new) in enumerate(zip(asked.operands, plan.operands, strict=True))
        if new is not None
        for move in moves_of(old, new, position)
    ]
    if not plan.direct:
        moves += [
            move
            for old, new in zip(plan.outputs, asked.out or (), strict=False)
            for move in moves_of(old, new, "result")
        ]
    given = [user_notation(form.layout) if form is not None else "number" for form in plan.operands]
    add_row(asked.op.name, given, [user_notation(form.layout) for form in plan.outputs], moves, why(asked, plan))


def note_move(name: str, before: Form, after: Form, reason: str = AS_IT_SAYS) -> None:
    """Note a move; by default one that the user has asked for."""
    if ROW_NOTES.rows is not None:
        moves = list(moves_of(before, after, 0))
        add_row(name, [user_notation(before.layout)], [user_notation(after.layout)], moves, reason)


def note_collective(asked: Collective, homes: Sequence[str], library: str) -> None:
    """Note a collective of plain tensors, and the library that carries it out, if one does."""
    received, names = asked.received(homes), list(dict.fromkeys((*homes, *asked.devices)))
    speed = bandwidth(names)
    move: dict[str, Any] = {
        "what": str(asked.collective.kind),
        "of": "its operands",
        "before": "plain",
        "after": "plain",
        "devices": names,
        "bytes": sum(received),
        "seconds": max(received) / speed,
        "bandwidth": speed,
        "by": library.partition(" ")[0],
    }
    add_row(move["what"], list(homes), asked.devices, [move] if any(received) else [], AS_IT_SAYS)


def add_row(op: str, inputs: list[str], outputs: list[str], moves: list[dict[str, Any]], reason: str) -> None:
    rows: Any = ROW_NOTES.rows
    total, time = sum(move["bytes"] for move in moves), sum(move["seconds"] for move in moves)
    row = {"op": op, "line": user_line(), "inputs": inputs, "outputs": outputs, "moves": moves}
    rows.append(row | {"bytes": total, "seconds": time, "why": reason})


def note_narrowing(before: Form, step: BoxingStep) -> None:
    """Note the moves before a tensor is indexed."""
    if ROW_NOTES.rows is not None:
        reason = "the selected elements of a split axis move"
        add_row(
            "getitem",
            [user_notation(before.layout)],
            [user_notation(step.after.layout)],
            [described(step, "operand 0")],
            reason,
        )


def note_writing(target: Form, steps: Sequence[BoxingStep]) -> None:
    """Note the moves before a value is written to a region of a tensor."""
    if ROW_NOTES.rows is not None:
        given = user_notation(steps[0].before.layout) if steps else "number"
        layout, moves = user_notation(target.layout), [described(step, "operand 1") for step in steps]
        add_row("setitem", [layout, given], [layout], moves, "each device gets the elements that it writes")


def moves_of(before: Form, after: Form, operand: int | str) -> Iterator[dict[str, Any]]:
    """The steps of boxing, as plain data."""
    for step in route(before, after):
        yield described(step, operand if isinstance(operand, str) else f"operand {operand}")


def described(step: BoxingStep, what: str) -> dict[str, Any]:
    """A step as plain data."""
    names = list(dict.fromkeys((*step.before.placement.names, *step.after.placement.names)))
    return {
        "what": step.name,
        "of": what,
        "before": user_notation(step.before.layout),
        "after": user_notation(step.after.layout),
        "devices": names,
        "bytes": sum(step.received),
        "seconds": step.seconds,
        "bandwidth": bandwidth(names),
    }


def why(asked: CallKind, plan: GlobalPlan) -> str:
    """The reason why these layouts were chosen."""
    others = [one for one in alternatives(asked) if (one.operands, one.outputs) != chosen(plan)]
    rule = asked.op.layouts
    if plan.moves and (isinstance(rule, str) or not others):
        reason = rule if isinstance(rule, str) else "no axis of these shapes can be split"
        return f"each device computes the whole op: {reason or 'the op has no rule'}"
    if not plan.boxes:
        return "the layouts fit"
    if any(isinstance(atom, Partial) for form in asked.operands if isinstance(form, Form) for atom in form.layout):
        return f"the cheapest of {len(others) + 1} ways; addends have to be summed"
    return f"the cheapest of {len(others) + 1} ways"


def chosen(plan: GlobalPlan) -> tuple[Any, Any]:
    """The layouts of a plan."""
    operands = tuple(None if form is None else form.layout for form in plan.operands)
    return operands, tuple(form.layout for form in plan.outputs)
