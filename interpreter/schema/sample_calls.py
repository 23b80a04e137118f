"""Small calls of ops, made from their definitions; running them compiles kernels before a program needs them.

A `Wish` selects the calls: `"matmul"`, `"matmul:float32,float64"`, `"log*"` (a pattern; `"*"` is every op), or a table
with more keys:

    {op = "sum", dtypes = ["float32"], shapes = [[64, 1024]], attributes = {axis = 1}, device = "cuda:0"}

The operands are found by trial: the dtypes are those of the op's definition, and the shapes are the first usual ones
that its infer function accepts. The values are identity matrices, or ones: they have an inverse,
are sorted, and are valid positions. The kernels of an elementwise op depend on dtypes, not on shapes, and on whether an
operand is a Python number, so it is called with a number, too. Other kernels may depend on the shapes.
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
from .op_table import similar
from .opdef import REGISTRY, REQUIRED, OpDef

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

# Shapes of operands; the last one holds for all further operands.
USUAL: Final[tuple[Shapes, ...]] = (
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
NUMBER: Final = 2  # in the place of an operand that is a Python number
NUMBERS: Final = (2, 2.5)  # beside a tensor
# Of ops whose kernels need other shapes than their infer functions accept.
ITS_OWN: Final[Mapping[str, tuple[Shapes, ...]]] = {"lstsq_residuals": (((8, 8), (8, 8), (8, 8), ()),)}
KEYS: Final = ("op", "dtypes", "shapes", "attributes", "device")  # of a table


@dataclass(frozen=True, slots=True)
class Wish:
    """A request to compile an op, or all ops that match a pattern.

    `dtypes`: of the operands that may have them; () for all that the op takes. `shapes`: of the operands; the last one
    holds for all further operands; () for usual shapes. `device`: "" for each that compiles kernels.
    """

    op: str
    dtypes: tuple[str, ...] = ()
    shapes: Shapes = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""

    @property
    def is_pattern(self) -> bool:
        """May it match several ops, among them ops that need shapes or attributes?"""
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
    """The wish of a list's entry, its keys checked; MetadataError describes the mistake in it."""
    if isinstance(entry, str):
        op, _, names = entry.partition(":")
        return checked(Wish(op.strip(), tuple(name.strip() for name in names.split(",") if name.strip())))
    if not isinstance(entry, Mapping) or not isinstance(entry.get("op"), str):
        raise MetadataError(f'must be "op", "op:dtype,dtype", or a table with op and {", ".join(KEYS[1:])}')
    if unknown := sorted(map(str, entry.keys() - set(KEYS))):
        raise MetadataError(f"has no key {unknown[0]!r} (known: {', '.join(KEYS)})")
    attributes, device = entry.get("attributes", {}), entry.get("device", "")
    if not isinstance(attributes, Mapping) or not isinstance(device, str):
        raise MetadataError("attributes are a table, and the device is a name")
    dtypes, shapes = texts(entry.get("dtypes", ())), shapes_of(entry.get("shapes", ()))
    return checked(Wish(entry["op"], dtypes, shapes, dict(attributes), device))


def texts(value: object) -> tuple[str, ...]:
    """A list of names."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise MetadataError('dtypes are a list, such as ["float32"]')
    return tuple(value)


def shapes_of(value: object) -> Shapes:
    """A list of shapes."""
    if not isinstance(value, Sequence) or not all(is_shape(one) for one in value):
        raise MetadataError("shapes are a list of lists of lengths, such as [[64, 64]]")
    return tuple([tuple(one) for one in value])


def is_shape(value: object) -> bool:
    """Is it a list of lengths?"""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(type(length) is int and length >= 0 for length in value)


def checked(wish: Wish) -> Wish:
    """The wish, if there is such an op, and it takes these dtypes."""
    ops = ops_of(wish)
    for dtype in wish.dtypes:
        if dtype not in DTYPES:
            raise MetadataError(f"there is no dtype {dtype!r}{similar(dtype, DTYPES)}")
        if not any(dtype in dtypes_of(op) for op in ops):
            raise MetadataError(f"{wish.op} does not take {dtype} (it takes {', '.join(dtypes_of(ops[0])) or 'none'})")
    return wish


def check_callable(wish: Wish) -> None:
    """MetadataError if a named op cannot be called with the given fields; a pattern may also match such ops."""
    if not wish.is_pattern:
        samples(ops_of(wish)[0], wish)


def ops_of(wish: Wish) -> list[OpDef]:
    """The ops that the wish names; MetadataError if there are none."""
    if wish.is_pattern:
        found = [op for name, op in REGISTRY.items() if fnmatchcase(name, wish.op)]
    else:
        found = [REGISTRY[wish.op]] if wish.op in REGISTRY else []
    if not found:
        raise MetadataError(f"there is no op {wish.op!r}{similar(wish.op, REGISTRY)}")
    return found


# -- samples -----------------------------------------------------------------------------------------------------------


def samples(op: OpDef, wish: Wish) -> list[SampleCall]:
    """Valid calls of one op; MetadataError, which names the missing keys, if there are none."""
    lacking = [each.name for each in op.attributes if each.default is REQUIRED and each.name not in wish.attributes]
    if lacking:
        raise MetadataError(f"{op.name} has to be given {', '.join(lacking)}", op=op.name)
    dtypes = [name for name in dtypes_of(op) if not wish.dtypes or name in wish.dtypes] or [""] * (not dtypes_of(op))
    found: dict[str, SampleCall] = {}
    why = ""
    for dtype in dtypes:
        try:
            found |= {str(sample): sample for sample in calls_with(op, dtype, wish)}
        except TensordError as error:
            why = why or error.message
    if not found:
        raise MetadataError(why or f"{op.name} takes none of these dtypes", op=op.name)
    return list(found.values())


def dtypes_of(op: OpDef) -> list[str]:
    """The dtypes that any of its operands may have; none for an op without tensors."""
    accepted = [accepted_at(op, place) for place in range(op.least_operands())]
    return [name for name in DTYPES if any(name in one for one in accepted)]


def accepted_at(op: OpDef, place: int) -> DTypes:
    """The dtypes of the operand in that place; none for a Python number."""
    return op.dtypes[min(place, len(op.dtypes) - 1)]


def calls_with(op: OpDef, dtype: str, wish: Wish) -> Iterator[SampleCall]:
    """Calls of an op with that dtype; MetadataError if none is valid."""
    refused: list[TensordError] = []
    for shapes in (wish.shapes,) if wish.shapes else ITS_OWN.get(op.name, USUAL):
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
    """The same with a Python number for the second operand, of an elementwise op that takes one."""
    if not op.elementwise or len(sample.operands) != 2 or not isinstance(sample.operands[1], Meta):
        return
    for number in NUMBERS:
        other = sample._replace(operands=(sample.operands[0], number))
        try:
            check(op, other)
        except TensordError:
            continue
        yield other


def operands_of(op: OpDef, dtype: str, shapes: Shapes) -> tuple[Any, ...]:
    """The metas of the fewest operands that the op takes, of the given dtype where the op allows it."""
    found: list[Any] = []
    for place in range(op.least_operands()):
        accepted = accepted_at(op, place)
        if not accepted:
            found.append(NUMBER)
            continue
        chosen = dtype if dtype in accepted else next(name for name in ("int64", *DTYPES) if name in accepted)
        found.append(Meta.of(shapes[min(place, len(shapes) - 1)], DTYPES[chosen]))
    return tuple(found)


def check(op: OpDef, sample: SampleCall) -> None:
    """MetadataError unless the call is valid."""
    metas: Metas = tuple([one if isinstance(one, Meta) else type(one) for one in sample.operands])
    infer_once(op, metas, op.freeze(sample.attributes))


def values_of(meta: Meta) -> NDArray[np.generic]:
    """Identity matrices, or ones."""
    values = np.ones(meta.shape, meta.dtype)
    if len(meta.shape) > 1 and meta.shape[-1] == meta.shape[-2]:
        values[...] = np.eye(meta.shape[-1])
    return values
