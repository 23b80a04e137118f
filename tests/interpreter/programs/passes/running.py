"""Runs programs step by step with NumPy, to compare the results of a program before and after a pass, bit for bit.

Views are views: a value is a layout over a block of bytes, so that kernels get packed and strided operands as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tensord.interpreter.programs.fusion import Fusion
from tensord.interpreter.programs.numbers import evaluate
from tensord.interpreter.programs.program import EFFECT, MOVE, PRINT, Program, Step
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta, packed_strides

Error = tuple[Any, ...]  # location, op, type, text


class Placed(NamedTuple):
    """A value: a block of bytes, and its layout in them."""

    memory: np.ndarray
    meta: Meta
    offset: int
    strides: tuple[int, ...]

    @property
    def array(self) -> np.ndarray:
        return np.ndarray(self.meta.shape, self.meta.dtype, self.memory, self.offset, self.strides)


class Failed(NamedTuple):
    """The error in place of a value."""

    error: Error


class Run(NamedTuple):
    """The outcome of a run: results, the tensors from outside that were written, effects and errors, in order."""

    results: list[Any]
    written: dict[int, Any]
    effects: list[Any]
    errors: list[Error]


Values = dict[int, Any]


def placed(array: np.ndarray) -> Placed:
    """A packed copy of the array."""
    memory = np.frombuffer(bytearray(array.tobytes() or b"\0"), np.uint8)
    return Placed(memory, Meta.of(array.shape, array.dtype), 0, packed_strides(array.shape, array.dtype.itemsize))


def strided(array: np.ndarray) -> Placed:
    """The array, with gaps between its elements."""
    wide = np.repeat(np.atleast_1d(array), 2, axis=-1)
    found = placed(wide)
    strides = (*found.strides[:-1], 2 * array.dtype.itemsize)[: array.ndim]
    return Placed(found.memory, Meta.of(array.shape, array.dtype), 0, strides)


def seen(value: Any) -> Any:
    """A value in a form that can be compared: bits, not numbers; but all NaNs are equal."""
    return value if isinstance(value, Failed) else (value.meta, bits(value.array))


def bits(array: np.ndarray) -> bytes:
    """The bits of an array, those of any NaN being the same."""
    return (
        np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes()
        if array.dtype.kind == "f"
        else array.tobytes()
    )


def run(
    program: Program,
    inputs: Sequence[Placed],
    parameters: Sequence[Any] = (),
    seed: int = 0,
    fusions: Mapping[Fusion, Callable[..., None]] = MappingProxyType({}),
) -> Run:
    """Run the program on the tensors of its parameters and captures, and on the values of its parameter numbers.

    Fusions run as fusions if none of their operands has failed.
    """
    numbers = evaluate(program.numbers, parameters, seed, range(7, 7 + program.draws))
    values: Values = dict(enumerate(inputs))
    effects: list[Any] = []
    errors: list[Error] = []
    with np.errstate(all="ignore"):
        lasts = {fusion.steps[-1]: fusion for fusion in fusions}
        inside = {position for fusion in fusions for position in fusion.steps}
        for position, step in enumerate(program.steps):
            if position in lasts:
                fusion = lasts[position]
                if any(isinstance(values.get(n), Failed) for n in fusion.inputs):
                    for each in fusion.steps:
                        advance(program, program.steps[each], values, numbers, effects, errors)
                else:
                    run_fusion(program, fusion, fusions[fusion], values, numbers)
            elif position not in inside:
                advance(program, step, values, numbers, effects, errors)
    return outcome(program, values, effects, errors)


def run_fusion(
    program: Program, fusion: Fusion, kernel: Callable[..., None], values: Values, numbers: Sequence[Any]
) -> None:
    """Run a fusion, in place if that is allowed and the operand is packed."""
    operands = [values[n].array if n >= 0 else numbers[~n] for n in fusion.inputs]
    outputs = []
    for value, over in zip(fusion.outputs, fusion.over, strict=True):
        meta = program.metas[value]
        if over >= 0 and operands[over].flags.c_contiguous:
            values[value] = placed(operands[over])
            operands[over] = values[value].array
        else:
            values[value] = placed(np.zeros(meta.shape, meta.dtype) if meta else np.zeros(()))
        outputs.append(values[value].array)
    kernel(*operands, *outputs)


def outcome(program: Program, values: Values, effects: list[Any], errors: list[Error]) -> Run:
    newest = {variable: value for value, variable in enumerate(program.variables)}
    written = {value: seen(values[newest[value]]) for value in program.written}
    return Run([seen(values[value]) for value in program.results], written, effects, errors)


def advance(
    program: Program, step: Step, values: Values, numbers: Sequence[Any], effects: list[Any], errors: list[Error]
) -> None:
    """Run one step."""
    operands = [values[n] if n >= 0 else numbers[~n] for n in step.operands]
    if step.op in (PRINT, EFFECT):
        effects.append((step.op, step.attributes, step.location, [seen(value) for value in operands]))
        return
    failed = next((value for value in operands if isinstance(value, Failed)), None)
    made: Sequence[Any] = [failed] * len(step.results)
    if failed is None:
        try:
            made = computed(program, step, operands)
        except Exception as error:
            errors.append((step.location, step.op, type(error).__name__, str(error)))
            made = [Failed(errors[-1])] * len(step.results)
    values.update(zip(range(step.first, step.first + len(step.results)), made, strict=True))


def computed(program: Program, step: Step, operands: Sequence[Any]) -> Sequence[Placed]:
    """The results of a step that may run."""
    if step.op == MOVE:
        here = program.homes[step.operands[0]] == step.device
        return [operands[0] if here else placed(operands[0].array)]
    op, attributes = find(step.op), dict(step.attributes)
    if op.view is not None and step.into is None and step.results[0] is not None:
        x = operands[0]
        layout = op.view(x.meta, (x.offset, x.strides), step.results[0], attributes)
        if layout is not None:
            return [Placed(x.memory, step.results[0], *layout)]
    arrays = [operand.array if isinstance(operand, Placed) else operand for operand in operands]
    metas = step.results
    if None in metas and not op.dynamic:  # the operands were pending at the call
        known = tuple(n.meta if isinstance(n, Placed) else type(n) for n in operands)
        metas = infer_once(op, known, step.attributes)
    outputs = [np.zeros(meta.shape, meta.dtype) for meta in metas if meta is not None]
    made = op.bind(np, len(arrays), attributes)(*arrays, *outputs)
    return [placed(np.asarray(array)) for array in (made if op.dynamic else outputs)]
