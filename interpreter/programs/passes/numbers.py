"""Numbers: unused ones are left out, equal ones are shared, and arithmetic among constants is done once.

Parameters and draws stay as they are: a run gives them by their places. Arithmetic that may raise stays, too, used or
not, and so does what raises now, has more than 64 bits, or does not fit an op that takes it: the run says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from ...errors import TensordError
from ...schema.promotion import WIRE_INTEGERS, check_scalar
from ...types.meta import Scalar
from ..numbers import ARITHMETIC, CONSTANT, DRAW, PARAMETER, SEED, Number
from ..program import Program, Step, plain_complex
from .facts import metas_of
from .rebuilding import rebuilt

# Arithmetic on numbers of one kind that gives a number of that kind, whatever the values.
SAFE = {
    "int": frozenset(("neg", "pos", "abs", "invert", "add", "sub", "mul", "and", "or", "xor")),
    "float": frozenset(("neg", "pos", "abs", "add", "sub", "mul")),
    "complex": frozenset(("neg", "pos", "add", "sub", "mul")),
    "bool": frozenset(("and", "or", "xor")),
}
LARGEST_POWER = 128  # bits


def numbers(program: Program) -> Program:
    """The program with fewer numbers."""
    merged, slots = merged_numbers(program)
    needed = needed_slots(program, merged, slots)
    if len(needed) == len(program.numbers) and merged == list(program.numbers):
        return program
    place = {slot: n for n, slot in enumerate(needed)}
    kept = [merged[slot]._replace(operands=tuple([place[n] for n in merged[slot].operands])) for slot in needed]
    return rebuilt(program, program.steps, None, kept, {old: place[new] for old, new in slots.items() if new in place})


def merged_numbers(program: Program) -> tuple[list[Number], dict[int, int]]:
    """The numbers, constants computed and equal ones shared; and where each of the program's is among them."""
    merged: list[Number] = []
    slots: dict[int, int] = {}
    found: dict[bytes, int] = {}
    users = users_of(program)
    for slot, old in enumerate(program.numbers):
        renamed = old._replace(operands=tuple([slots[n] for n in old.operands]))
        number = computed(program, renamed, merged, users.get(slot, ()))
        given = number.op in (PARAMETER, DRAW)
        slots[slot] = len(merged) if given else found.setdefault(packed(number), len(merged))
        if slots[slot] == len(merged):
            merged.append(number)
    return merged, slots


def packed(number: Number) -> bytes:
    """A number as bytes that no other number has: as values, 0.0 equals -0.0, and 1 equals True."""
    found: bytes = msgpack.packb(number, default=plain_complex)
    return found


def users_of(program: Program) -> dict[int, list[Step]]:
    """The steps that take each number."""
    users: dict[int, list[Step]] = {}
    for step in program.steps:
        for slot in {~operand for operand in step.operands if operand < 0}:
            users.setdefault(slot, []).append(step)
    return users


def computed(program: Program, number: Number, earlier: Sequence[Number], users: Sequence[Step]) -> Number:
    """A constant in place of arithmetic among constants, if that gives what a program may have there."""
    operands = [earlier[n] for n in number.operands]
    if not operands or any(operand.op != CONSTANT for operand in operands):
        return number
    values: list[Any] = [operand.value for operand in operands]
    if number.op == "pow" and is_vast(*values):
        return number
    try:
        value = ARITHMETIC[number.op][1](*values)
    except Exception:  # whatever Python raises, or warns of
        return number
    if type(value).__name__ != number.kind or not fits(program, value, users):
        return number
    return Number(number.kind, CONSTANT, (), value)


def is_vast(base: Any, exponent: Any) -> bool:
    """Is it an integer power of more bits than any number may have? Computing it might take for ever."""
    return isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > LARGEST_POWER


def fits(program: Program, value: Scalar, users: Sequence[Step]) -> bool:
    """May the value stand among the operands of these steps?"""
    if type(value) is int and value not in WIRE_INTEGERS:
        return False
    try:
        for step in users:
            check_scalar(step.op, value, metas_of(program, step), dict(step.attributes))
    except TensordError:
        return False
    return True


def needed_slots(program: Program, merged: Sequence[Number], slots: dict[int, int]) -> list[int]:
    """The numbers that stay: those that steps take, those that a run gives, and those that may raise."""
    needed = {slots[~operand] for step in program.steps for operand in step.operands if operand < 0}
    needed.update(slot for slot, number in enumerate(merged) if not may_be_dropped(number, merged))
    for slot in range(len(merged) - 1, -1, -1):
        if slot in needed:
            needed.update(merged[slot].operands)
    return sorted(needed)


def may_be_dropped(number: Number, earlier: Sequence[Number]) -> bool:
    """May it be left out where nobody needs it? Not what a run gives, nor what may raise."""
    if number.op in (CONSTANT, SEED, PARAMETER, DRAW):
        return number.op in (CONSTANT, SEED)
    kinds = {earlier[n].kind for n in number.operands}
    return kinds == {number.kind} and number.op in SAFE[number.kind]
