"""Shares equal numbers, and computes arithmetic among constants once.

Each number keeps its slot, used or not, since a run gives the values of all of them. Arithmetic stays if it raises,
or if its result has more than 64 bits or does not fit an op that takes it, so that the run reports the error. It also
stays if the client's machine might round it differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from ...errors import TensordError
from ...schema.promotion import WIRE_INTEGERS, check_scalar
from ...types.meta import Scalar
from ..facts import metas_of
from ..numbers import ARITHMETIC, CONSTANT, DRAW, PARAMETER, Number
from ..program import Program, Step, plain_complex
from .rebuilding import rebuilt

MAX_POWER_BITS = 128  # bits


def numbers(program: Program) -> Program:
    """The program with fewer used numbers; all of them keep their slots."""
    first_slots: dict[bytes, int] = {}
    slots: dict[int, int] = {}  # slot of a number -> slot of its replacement
    new_numbers: list[Number] = []
    users = users_of(program)
    for slot, old in enumerate(program.numbers):
        number = computed(program, old, new_numbers, users.get(slot, ()))
        new_numbers.append(number)
        given = number.op in (PARAMETER, DRAW)
        renamed = number._replace(operands=tuple([slots[n] for n in number.operands]))
        slots[slot] = slot if given else first_slots.setdefault(packed(renamed), slot)
    if new_numbers == list(program.numbers) and all(slots[slot] == slot for slot in users):
        return program
    return rebuilt(program, program.steps, None, new_numbers, slots)


def packed(number: Number) -> bytes:
    """The bytes of a number, as a key. The values themselves would not do: 0.0 == -0.0, and 1 == True."""
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
    """The number, folded to a constant if it is arithmetic on constants whose result its users accept; else as it
    is."""
    operands = [earlier[n] for n in number.operands]
    if not operands or any(operand.op != CONSTANT for operand in operands) or not is_exact(number, operands):
        return number
    values: list[Any] = [operand.value for operand in operands]
    if number.op == "pow" and is_vast(*values):
        return number
    try:
        value = ARITHMETIC[number.op][1](*values)
    except Exception:  # Python may raise or warn of anything
        return number
    if type(value).__name__ != number.kind or not fits(program, value, users):
        return number
    return Number(number.kind, CONSTANT, (), value)


def is_exact(number: Number, operands: Sequence[Number]) -> bool:
    """Return whether every machine computes the same bits: not for powers, except of ints, nor with complex numbers."""
    if number.op == "pow":
        return number.kind == "int"
    return "complex" not in (number.kind, *[operand.kind for operand in operands])


def is_vast(base: Any, exponent: Any) -> bool:
    """Return whether an integer power might have more than `MAX_POWER_BITS` bits, so that computing it might take very
    long."""
    return isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_POWER_BITS


def fits(program: Program, value: Scalar, users: Sequence[Step]) -> bool:
    """Return whether the value may be an operand of these steps."""
    if type(value) is int and value not in WIRE_INTEGERS:
        return False
    try:
        for step in users:
            check_scalar(step.op, value, metas_of(program, step), dict(step.attributes))
    except TensordError:
        return False
    return True
