"""The memory of a fusion's temporaries."""

from __future__ import annotations

import numpy as np

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import find_fusions
from tensord.interpreter.types.meta import Meta
from tensord.streams.host.fused_layout import Cell, FusedExtent, FusedLayout, ScratchPart, Temporary

SINGLE, DOUBLE, WHOLE = np.dtype("float32"), np.dtype("float64"), np.dtype("int32")


def test_memory_is_free_once_what_lies_there_was_read() -> None:
    cell = Cell(-1, 0, 4, until=3, dtype=SINGLE)
    assert not cell.takes(2, 5, SINGLE)
    assert cell.takes(3, 5, SINGLE)  # over an operand
    assert not cell.takes(3, 5, WHOLE)  # NumPy would copy the operand first
    assert cell.takes(4, 5, WHOLE)


def test_scratch_is_wide_enough_and_outputs_are_exactly_as_wide() -> None:
    scratch, output = Cell(-1, 0, 8), Cell(5, -1, 8, end=9, made=DOUBLE)
    assert scratch.takes(0, 1, SINGLE)
    assert not output.takes(0, 1, SINGLE)
    assert not Cell(-1, 0, 4).takes(0, 1, DOUBLE)


def test_an_output_is_left_before_it_is_made() -> None:
    cell = Cell(5, -1, 4, end=3, made=SINGLE)
    assert cell.takes(0, 2, WHOLE)
    assert cell.takes(0, 3, SINGLE)  # the last step writes over it
    assert not cell.takes(0, 3, WHOLE)
    assert not cell.takes(0, 4, SINGLE)


def test_an_output_over_an_input_is_free_when_the_input_was_read() -> None:
    builder = Builder()
    w, g = (builder.parameter(Meta.of((9,), "float32")) for _ in range(2))
    (first,) = builder.op("sqrt", [g])
    (second,) = builder.op("multiply", [w, first])
    (third,) = builder.op("less", [second, g])
    builder.op("where", [third, second, g], into=[w])
    program = builder.finish([])
    (fusion,) = find_fusions(program, least=1)
    layout = FusedLayout(program, fusion, lend=True)
    inputs, output = {n: position for position, n in enumerate(fusion.inputs)}, len(fusion.inputs)
    assert [call.result for call in layout.calls] == [output + 1, output, output + 2, output]
    assert layout.temporaries == [Temporary(-1, 0, SINGLE), Temporary(-1, 0, np.dtype(bool))]
    assert layout.calls[1].operands == (inputs[w], output + 1)
    assert layout.parts == [ScratchPart(4, FusedExtent.WHOLE)]
