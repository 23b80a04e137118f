"""Memory that instructions will reserve: the sums follow each addition and removal, in program order."""

from __future__ import annotations

import random

from tensord.interpreter.opcodes import Opcode
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.needs import Needs

from ..parts import Parts


def instructions(count: int) -> list[Instruction]:
    """Instructions in program order."""
    parts = Parts()
    made = [parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.here, 0) for _ in range(count)]
    for number, one in enumerate(made):
        one.admitted = number
    return made


def test_the_sums_and_the_order_are_right_after_each_change():
    random_ = random.Random(3)
    some, needs = instructions(12), Needs()
    expected: dict[Instruction, int] = {}
    table = needs.needs
    for _ in range(500):
        one = random_.choice(some)
        if random_.random() < 0.4:
            needs.take(one)
            expected.pop(one, None)
        else:
            expected[one] = random_.choice((-1, 0, 8, 64))
            needs.put(one, expected[one])
        assert needs.needs is table
        assert list(table.items()) == sorted(expected.items(), key=lambda entry: entry[0].admitted)
        known = [need for need in expected.values() if need >= 0]
        assert (needs.nbytes, needs.unknown) == (sum(known), len(expected) - len(known))


def test_what_is_not_there_is_taken_without_harm():
    (one,), needs = instructions(1), Needs()
    needs.take(one)
    assert (needs.nbytes, needs.unknown) == (0, 0)
