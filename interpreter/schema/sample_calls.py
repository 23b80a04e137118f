"""Small calls of ops, made from their definitions. Running them compiles kernels before a program needs them.

A `Wish` selects the calls: `"matmul"`, `"matmul:float32,float64"`, `"log*"` (a pattern; `"*"` is every op), or a table
with more keys:

    {op = "sum", dtypes = ["float32"], shapes = [[64, 1024]], attributes = {axis = 1}, device = "cuda:0"}

The operands are found by trial: the dtypes are those of the op's definition, and the shapes are the first of
`USUAL_SHAPES` that its infer function accepts. The values are identity matrices, or ones: they have an inverse, are
sorted, and are valid positions. The kernel of an elementwise op depends on the dtypes, and on whether an operand is a
Python number, but not on the shapes; so a call with a number is made, too. Other kernels may depend on the shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import MetadataError, TensordError
from ..types.kinds import DTypes
from ..types.meta import DTYPES, Meta, Metas
from .infer import infer_once
from .opdef import REGISTRY, REQUIRED, OpDef
from .suggestions import similar

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

# Shapes of operands; the last one holds for all further operands.
USUAL_SHAPES: Final[tuple[Shapes, ...]] = (
    ((8, 8),),
    ((8,),),
    ((2, 8, 8),),
    ((2, 2, 6, 6), (2, 2, 3, 3), (2,)),
    ((2, 2, 4, 4), (2, 2, 6, 6), (2, 2, 3, 3)),
    ((2, 2, 3, 3), (2, 2, 6, 6)),
    ((8, 8), (8,)),
    ((8, 8), (8, 8), (8,)),
    ((), (8, 8), (8,)),
    ((3,),),
    ((),),
)
NUMBER_OPERAND: Final = 2  # the value of an operand that must be a Python number
SECOND_NUMBERS: Final = (2, 2.5)  # the values of a Python number beside a tensor
# The shapes for ops whose kernels do not accept all shapes that their infer functions accept.
SHAPES_OF_OPS: Final[Mapping[str, tuple[Shapes, ...]]] = {"lstsq_residuals": (((8, 8), (8, 8), (8, 8), ()),)}
WISH_KEYS: Final = ("op", "dtypes", "shapes", "attributes", "device")  # the keys of a wish that is a table


@dataclass(frozen=True, slots=True)
class Wish:
    """A request to compile an op, or all ops that match a pattern.

    `dtypes`: the dtypes of the operands; () for all that the op takes. `shapes`: the shapes of the operands, the
    last one for all further operands; () for usual shapes. `device`: "" for every device that compiles kernels.
    """

    op: str
    dtypes: tuple[str, ...] = ()
    shapes: Shapes = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether `op` is a pattern, which may match several ops, even ops that need shapes or attributes."""
        return any(sign in self.op for sign in "*?[")


class SampleCall(NamedTuple):
    """A valid call. `operands`: metas, and Python numbers."""

    op: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]

    def __str__(self) -> str:
        shown = [f"{one.dtype}{list(one.shape)}" if isinstance(one, Meta) else repr(one) for one in self.operands]
        return f"{self.op}({', '.join(shown)})"


# -- wishes ------------------------------------------------------------------------------------------------------------


def wish_of(entry: object) -> Wish:
    """The wish for an entry of a list, with its keys checked. MetadataError describes the mistake."""
    if isinstance(entry, str):
        op, _, names = entry.partition(":")
        return checked(Wish(op.strip(), tuple(name.strip() for name in names.split(",") if name.strip())))
    if not isinstance(entry, Mapping) or not isinstance(entry.get("op"), str):
        raise MetadataError(f'must be "op", "op:dtype,dtype", or a table with op and {", ".join(WISH_KEYS[1:])}')
    if unknown := sorted(map(str, entry.keys() - set(WISH_KEYS))):
        raise MetadataError(f"has no key {unknown[0]!r} (known: {', '.join(WISH_KEYS)})")
    attributes, device = entry.get("attributes", {}), entry.get("device", "")
    if not isinstance(attributes, Mapping) or not isinstance(device, str):
        raise MetadataError("attributes must be a table, and the device a name")
    dtypes, shapes = texts(entry.get("dtypes", ())), shapes_of(entry.get("shapes", ()))
    return checked(Wish(entry["op"], dtypes, shapes, dict(attributes), device))


def texts(value: object) -> tuple[str, ...]:
    """The names in a list. MetadataError if it is not a list of names."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise MetadataError('dtypes must be a list, such as ["float32"]')
    return tuple(value)


def shapes_of(value: object) -> Shapes:
    """The shapes in a list. MetadataError if it is not a list of shapes."""
    if not isinstance(value, Sequence) or not all(is_shape(one) for one in value):
        raise MetadataError("shapes must be a list of lists of lengths, such as [[64, 64]]")
    return tuple([tuple(one) for one in value])


def is_shape(value: object) -> bool:
    """Whether the value is a list of lengths."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(type(length) is int and length >= 0 for length in value)


def checked(wish: Wish) -> Wish:
    """The wish, after a check that the op exists and takes these dtypes."""
    ops = ops_of(wish)
    for dtype in wish.dtypes:
        if dtype not in DTYPES:
            raise MetadataError(f"unknown dtype {dtype!r}{similar(dtype, DTYPES)}")
        if not any(dtype in dtypes_of(op) for op in ops):
            raise MetadataError(f"{wish.op} does not take {dtype} (it takes {', '.join(dtypes_of(ops[0])) or 'none'})")
    return wish


def check_callable(wish: Wish) -> None:
    """Raise MetadataError if a named op cannot be called with the given fields. A pattern may match such ops."""
    if not wish.is_pattern:
        samples(ops_of(wish)[0], wish)


def ops_of(wish: Wish) -> list[OpDef]:
    """The ops that the wish names; MetadataError if there are none."""
    if wish.is_pattern:
        ops = [op for name, op in REGISTRY.items() if fnmatchcase(name, wish.op)]
    else:
        ops = [REGISTRY[wish.op]] if wish.op in REGISTRY else []
    if not ops:
        raise MetadataError(f"unknown op {wish.op!r}{similar(wish.op, REGISTRY)}")
    return ops


# -- samples -----------------------------------------------------------------------------------------------------------


def samples(op: OpDef, wish: Wish) -> list[SampleCall]:
    """Valid calls of one op. MetadataError, with the missing keys, if there are none."""
    lacking = [each.name for each in op.attributes if each.default is REQUIRED and each.name not in wish.attributes]
    if lacking:
        raise MetadataError(f"{op.name} requires {', '.join(lacking)}", op=op.name)
    dtypes = [name for name in dtypes_of(op) if not wish.dtypes or name in wish.dtypes] or [""] * (not dtypes_of(op))
    calls: dict[str, SampleCall] = {}
    why = ""
    for dtype in dtypes:
        try:
            calls |= {str(sample): sample for sample in calls_with(op, dtype, wish)}
        except TensordError as error:
            why = why or error.message
    if not calls:
        raise MetadataError(why or f"{op.name} takes none of these dtypes", op=op.name)
    return list(calls.values())


def dtypes_of(op: OpDef) -> list[str]:
    """The dtypes that an operand of the op may have; none for an op without tensors."""
    accepted = [accepted_at(op, position) for position in range(op.least_operands())]
    return [name for name in DTYPES if any(name in one for one in accepted)]


def accepted_at(op: OpDef, position: int) -> DTypes:
    """The dtypes that the operand at that position may have; none for a Python number."""
    return op.dtypes[min(position, len(op.dtypes) - 1)]


def calls_with(op: OpDef, dtype: str, wish: Wish) -> Iterator[SampleCall]:
    """Valid calls of an op with that dtype. MetadataError if there are none."""
    refused: list[TensordError] = []
    for shapes in (wish.shapes,) if wish.shapes else SHAPES_OF_OPS.get(op.name, USUAL_SHAPES):
        sample = SampleCall(op.name, operands_of(op, dtype, shapes), wish.attributes)
        try:
            check(op, sample)
        except TensordError as error:
            refused.append(error)
            continue
        yield sample
        yield from with_numbers(op, sample)
        return
    raise refused[0]


def with_numbers(op: OpDef, sample: SampleCall) -> Iterator[SampleCall]:
    """The call with a Python number as the second operand, if the op is elementwise and takes one."""
    if not op.elementwise or len(sample.operands) != 2 or not isinstance(sample.operands[1], Meta):
        return
    for number in SECOND_NUMBERS:
        other = sample._replace(operands=(sample.operands[0], number))
        try:
            check(op, other)
        except TensordError:
            continue
        yield other


def operands_of(op: OpDef, dtype: str, shapes: Shapes) -> tuple[Any, ...]:
    """The metas of as few operands as the op takes, with the given dtype where the op allows it."""
    operands: list[Any] = []
    for position in range(op.least_operands()):
        accepted = accepted_at(op, position)
        if not accepted:
            operands.append(NUMBER_OPERAND)
            continue
        chosen = dtype if dtype in accepted else next(name for name in ("int64", *DTYPES) if name in accepted)
        operands.append(Meta.of(shapes[min(position, len(shapes) - 1)], DTYPES[chosen]))
    return tuple(operands)


def check(op: OpDef, sample: SampleCall) -> None:
    """Raise MetadataError unless the call is valid."""
    metas: Metas = tuple([one if isinstance(one, Meta) else type(one) for one in sample.operands])
    infer_once(op, metas, op.freeze(sample.attributes))


def values_of(meta: Meta) -> NDArray[np.generic]:
    """The values of an operand: identity matrices, or ones."""
    values = np.ones(meta.shape, meta.dtype)
    if len(meta.shape) > 1 and meta.shape[-1] == meta.shape[-2]:
        values[...] = np.eye(meta.shape[-1])
    return values
