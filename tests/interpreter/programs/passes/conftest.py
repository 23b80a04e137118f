"""Fixtures for tests of passes: a builder with some tensors, and short forms of a program's steps."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta

MATRIX = Meta.of((4, 4), "float32")
INTEGERS = Meta.of((4, 4), "int32")


class Writer(Builder):
    """A builder with two matrices, values 0 and 1, and a tensor of integers, value 2; all on d0."""

    def __init__(self) -> None:
        super().__init__()
        for meta in (MATRIX, MATRIX, INTEGERS):
            self.parameter(meta)

    def call(self, name: str, *operands: int, device: int = 0, into: int | None = None, **attributes: Any) -> int:
        """Add an op with one result. Returns its value. The location is the number of the step."""
        targets = None if into is None else [into]
        return self.op(name, operands, attributes, device, targets, location=len(self.steps))[0]

    def constant(self, value: Any) -> int:
        """Add a constant, as an operand."""
        return ~self.number(type(value).__name__, "constant", (), value)


@pytest.fixture
def builder() -> Writer:
    return Writer()


def ops(program: Program) -> list[str]:
    """The ops of a program, in their order."""
    return [step.op for step in program.steps]


def operands(program: Program) -> list[tuple[int, ...]]:
    """The operands of its steps."""
    return [step.operands for step in program.steps]
