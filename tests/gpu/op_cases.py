"""Calls of every op, made from its definition: dtypes, shapes, layouts, special values, attributes.

There is no list of ops here. For each dtype of the first operand some arrangements of operands are tried, and those
that the op's infer function takes are cases; the same with the attributes, of which each in turn has a value other than
its default. So a new op has cases as soon as it is defined. Values for attributes that have no default are in
`SAMPLES`, by the attribute's name, and for a few ops in `ITS_OWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, REQUIRED, OpDef
from tensord.interpreter.schema.promotion import check_scalar
from tensord.interpreter.types.meta import DTYPES, Meta

from ..special_values import least

VARIED = frozenset({"bool", "int64", "float32", "complex64"})  # of the first operand, where attributes vary
COMMON = VARIED | {"float64"}
MOST, FEWER = 48, 20  # cases of an op with one dtype: of those that vary, and of the others

# Shapes of the operands, the last one counting for the rest. "strided": each is every other element of a larger array,
# backwards along its last axis.
SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "plain": ((3, 4),),
    "0-d": ((),),
    "empty": ((0, 3),),
    "broadcast": ((3, 1), (1, 4)),
    "strided": ((3, 4),),
    "vectors": ((5,),),
    "square": ((3, 3),),
    "stack": ((2, 3, 3),),
    "images": ((2, 2, 6, 6), (2, 2, 3, 3), (2,)),
    "gradient of images": ((2, 2, 4, 4), (2, 2, 6, 6), (2, 2, 3, 3)),
    "pooled": ((2, 2, 3, 3), (2, 2, 6, 6)),
    "rows and labels": ((3, 4), (3,)),
    "rows and weights": ((3, 4), (4,)),
    "gradients, rows, weights": ((3, 4), (3, 4), (4,)),
    "gradients and labels": ((), (3, 4), (3,)),
    "long": ((70, 33),),
}
# CuPy compiles a reduction for each length anew, which takes seconds. These lengths are tried with the common dtypes.
LENGTHS = frozenset({"images", "gradient of images", "pooled", "long"})
SCALARS = (True, 2, 2.5, 1 + 2j)
SAMPLES: Mapping[str, tuple[Any, ...]] = {
    "axes": ((1, 0), (0,), 1),
    "axis": (0, -1, (0, 1), None),
    "correction": (1.0,),
    "count": (7,),
    "descending": (True,),
    "destination": (0,),
    "dilation": ((1, 1),),
    "dtype": ("float64", "int32", "complex64", "float16", "uint8", "bool"),
    "endpoint": (False,),
    "full_matrices": (False,),
    "high": (9,),
    "include_initial": (True,),
    "index": ((("slice", None, None, -1),), (0,), ("...", ("slice", 1, None, 2))),
    "invert": (True,),
    "is_causal": (True,),
    "k": (1, -1),
    "keepdims": (True,),
    "kernel_size": ((2, 2),),
    "low": (2,),
    "method": ("lower", "nearest"),
    "mode": ("same", "valid", "complete"),
    "n": (3, 2),
    "n_rows": (3,),
    "norm": ("ortho", "forward"),
    "num": (7,),
    "num_classes": (4,),
    "num_embeddings": (5,),
    "offset": (1, -1),
    "ord": (1, float("inf"), "nuc", -2),
    "padding": ((1, 1),),
    "rate": (0.25,),
    "repeats": (2,),
    "repetitions": ((2, 1),),
    "shape": ((3, 4), (-1,), (2, 3, 4), (12,)),
    "shift": ((1,), 1),
    "side": ("right",),
    "source": (1,),
    "start": (1,),
    "stop": (9,),
    "stride": ((2, 2),),
    "subscripts": ("ij,jk->ik", "ij->ji", "ij->", "ij,ij->i", "i,i->"),
    "upper": (True,),
}
ITS_OWN: Mapping[str, tuple[dict[str, Any], ...]] = {
    "advanced_getitem": ({"index": ("tensor",)}, {"index": (("slice", None, None, None), "tensor")}),
    "advanced_setitem": ({"index": ("tensor",)},),
    "dynamic_getitem": ({"index": ("tensor",)},),
    "diff": ({}, {"prepend": True}, {"n": 2}),
    "histogram": ({"bins": 5}, {"bins": 4, "range": (-2.0, 2.0)}),
    "interp": ({},),
    "overwrite": tuple({"index": ("...",), "shape": (3, 4), "dtype": dtype} for dtype in ("float64", "complex128")),
}
SPECIAL = "special values"  # the label of a case with some
FAR = (5e-309, 2.3e-308, 1e-300, 1e-9, 1e-3, 0.5, 1 - 2**-53, 1.5, 30.0, 1e4, 1e10, 1e18, 1.7e308, np.inf, np.nan, -0.5)
EXTREMES = (0, 1, 2, 3, 7, -1, -2, -7)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-3, 30.0, np.nan, np.inf, -np.inf)
# Operands whose order matters: (op, position) -> the function that makes one of an ordinary array.
ORDERED: Mapping[tuple[str, int], Callable[[Any], Any]] = {
    ("searchsorted", 0): np.sort,
    ("searchsorted", 2): np.argsort,
    ("interp", 1): np.sort,
    ("histogram", 1): np.sort,
}
FAMILIES_OF_MATRICES = frozenset({"decompositions", "diagonals", "norms", "solving"})


@dataclass(frozen=True, eq=False)
class Case:
    """One call. `operands`: arrays, whole in memory, and Python scalars; a device gets the view in `seen` of a
    `strided` array.
    """

    op: str
    what: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    strided: bool = False

    def __str__(self) -> str:
        given = f", {dict(self.attributes)}" if self.attributes else ""
        return f"{self.op}({', '.join(map(shown, self.operands))}{given}), {self.what}"


def shown(operand: Any) -> str:
    """Dtype and shape, or the scalar."""
    return f"{operand.dtype}{list(operand.shape)}" if isinstance(operand, np.ndarray) else repr(operand)


def seen(array: Any, *, strided: bool) -> Any:
    """The operand, as an array or tensor in the case's layout."""
    return array[..., ::-2] if strided and array.ndim else array


def family(op: OpDef) -> str:
    """The module that defines it."""
    return (op.kernel or op.infer).__module__.rpartition(".")[2]


def dtypes_of(op: OpDef) -> list[str]:
    """The dtypes of its first operand that is a tensor; "" for an op without one."""
    accepted = next((dtypes for dtypes in op.dtypes if dtypes), frozenset()) if op.most_operands() != 0 else frozenset()
    return [name for name in DTYPES if name in accepted] or [""]


def cases(op: OpDef, dtype: str, *, subnormal: bool = True, most: int = MOST) -> list[Case]:
    """Calls of the op with that dtype, each valid, the ordinary ones first. `subnormal`: as in `special_values`."""
    most = most if dtype in VARIED or not dtype else min(most, FEWER)
    return list(islice(_valid(op, dtype, subnormal=subnormal), most))


def _valid(op: OpDef, dtype: str, *, subnormal: bool) -> Iterator[Case]:
    known: set[tuple[Any, ...]] = set()
    takes_plain = False
    for case in _candidates(op, dtype, subnormal=subnormal):
        if takes_plain and case.what in LENGTHS and dtype not in COMMON:
            continue
        key = (case.what, *map(shown, case.operands), repr(sorted(case.attributes.items())))
        if key not in known and is_valid(op, case):
            known.add(key)
            takes_plain |= case.what == "plain"
            yield case


def is_valid(op: OpDef, case: Case) -> bool:
    """Does the op's own infer function take it?"""
    operands = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    metas = tuple(Meta.of(x.shape, x.dtype) if isinstance(x, np.ndarray) else type(x) for x in operands)
    try:
        frozen = op.freeze(case.attributes)
        infer_once(op, metas, frozen)
        for operand in operands:
            check_scalar(op.name, operand, metas, dict(frozen))
    except MetadataError:
        return False
    return True


def _candidates(op: OpDef, dtype: str, *, subnormal: bool) -> Iterator[Case]:
    every = list(settings_of(op, dtype))
    required = [attributes for attributes in every if set(attributes) <= needed(op)] or every
    if not dtype:
        for attributes in every:
            for count in counts(op):
                yield Case(op.name, "no tensor", (7,) * count, attributes)
        return
    for attributes in required:
        yield from arranged(op, dtype, "plain", attributes)
        yield from special(op, dtype, attributes, subnormal=subnormal)
    for what in SHAPES:
        for attributes in required[:2]:
            yield from arranged(op, dtype, what, attributes)
    for attributes in required[:1]:
        yield from with_scalars(op, dtype, attributes)
    if dtype in VARIED:
        for what in ("plain", "stack", "strided"):
            for attributes in every:
                yield from arranged(op, dtype, what, attributes)


def needed(op: OpDef) -> set[str]:
    """Attributes without a default."""
    return {attribute.name for attribute in op.attributes if attribute.default is REQUIRED}


def settings_of(op: OpDef, dtype: str) -> Iterator[dict[str, Any]]:
    """Attributes to call it with: the required ones alone, then each other one with each of its samples."""
    if op.name in ITS_OWN:
        yield from ITS_OWN[op.name]
        return
    bases: list[dict[str, Any]] = [{}]
    for name in sorted(needed(op)):
        bases = [{**base, name: value} for base in bases for value in SAMPLES.get(name, ())]
    yield from bases
    for attribute in op.attributes:
        if attribute.name not in needed(op) and (dtype in VARIED or not dtype):
            for base in bases[:1]:
                yield from ({**base, attribute.name: value} for value in SAMPLES.get(attribute.name, ()))


def counts(op: OpDef) -> Sequence[int]:
    """Numbers of operands."""
    least, most = op.least_operands(), op.most_operands()
    return range(least, (most if most is not None else least + 2) + 1)


def arranged(op: OpDef, dtype: str, what: str, attributes: Mapping[str, Any]) -> Iterator[Case]:
    """Cases with operands of those shapes."""
    shapes, strided = SHAPES[what], what == "strided"
    for count in counts(op):
        chosen = [shapes[min(position, len(shapes) - 1)] for position in range(count)]
        operands = tuple(operand(op, position, dtype, shape, strided) for position, shape in enumerate(chosen))
        yield Case(op.name, what, operands, attributes, strided)


def operand(op: OpDef, position: int, dtype: str, shape: tuple[int, ...], strided: bool) -> Any:
    """An operand at that position, as the op's dtypes have it."""
    found = _operand(op, position, dtype, shape, strided)
    return found.copy() if isinstance(found, np.ndarray) else found


@lru_cache(maxsize=256)
def _operand(op: OpDef, position: int, dtype: str, shape: tuple[int, ...], strided: bool) -> Any:
    accepted = op.dtypes[min(position, len(op.dtypes) - 1)]
    if not accepted:
        return 7
    chosen = dtype if dtype in accepted else next(n for n in ("int64", "float32", *DTYPES) if n in accepted)
    if strided and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    rng = np.random.default_rng([position, *shape, *op.name.encode()])
    if family(op) in FAMILIES_OF_MATRICES and shape[-2:] and len(shape) > 1 and shape[-1] == shape[-2]:
        return positive_definite(rng, shape, chosen)
    if shape and (op.name, position) in ORDERED:
        return ORDERED[op.name, position](np.sort(ordinary(rng, shape, chosen)))
    return ordinary(rng, shape, chosen, small=dtype not in accepted or family(op) in {"embedding", "losses"})


def ordinary(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, small: bool = False) -> Any:
    """Values that are neither large nor special. `small`: integers are positions."""
    kind = DTYPES[dtype].kind
    if kind in "biu":
        low, high = (0, 2) if kind == "b" else (0, 3) if small else (0 if kind == "u" else -4, 5)
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    values = np.asarray(rng.normal(size=shape))
    return np.asarray(values + 1j * rng.normal(size=shape) if kind == "c" else values).astype(dtype)


def positive_definite(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Matrices for all purposes: with an inverse, distinct eigenvalues, a Cholesky factor."""
    root = ordinary(rng, shape, "complex128" if DTYPES[dtype].kind == "c" else "float64")
    size = shape[-1]
    return (root @ np.conj(np.swapaxes(root, -1, -2)) + np.diag(np.arange(1.0, size + 1))).astype(dtype)


def special(op: OpDef, dtype: str, attributes: Mapping[str, Any], *, subnormal: bool) -> Iterator[Case]:
    """Special values, each with each."""
    values = special_values(dtype, subnormal=subnormal)
    for count in counts(op):
        if count <= 3 and all(dtype in accepted for accepted in op.dtypes):
            columns = np.meshgrid(*[values] * min(count, 2), indexing="ij")
            flat = [np.ascontiguousarray(column.ravel()) for column in columns]
            flat = [ORDERED.get((op.name, position), np.asarray)(column) for position, column in enumerate(flat)]
            yield Case(op.name, SPECIAL, tuple((*flat, flat[0][::-1].copy())[:count]), attributes)


def far_apart(op: OpDef, dtype: str) -> Iterator[Case]:
    """Calls of a special function with each combination of operands at which its loops might not end."""
    if op.library is not None and dtype == "float64":
        columns = np.meshgrid(*[np.array(FAR)] * op.inputs, indexing="ij")
        yield Case(op.name, "operands far apart", tuple(column.ravel() for column in columns), {})


def special_values(dtype: str, *, subnormal: bool = True) -> Any:
    """Limits, infinities, NaN, signed zeros; subnormals unless `subnormal` is False, and a GPU does not have them."""
    of: Any = DTYPES[dtype]
    if of.kind == "b":
        return np.array([False, True])
    if of.kind in "iu":
        limits = np.iinfo(of)
        extremes = [value for value in EXTREMES if value >= limits.min]
        return np.array([*extremes, limits.min, limits.max, limits.max - 1], of)
    if of.kind == "c":
        parts = np.array([0.0, -0.0, 1.0, -2.5, np.nan, np.inf, -np.inf])
        values = np.empty((len(parts), len(parts)), of)  # not a sum: inf times 0 is none of the parts
        values.real, values.imag = parts[:, None], parts[None, :]
        return values.ravel()
    limit = np.finfo(of)
    smallest = least(of, gpu=not subnormal)
    return np.array([*FLOATS, limit.max, limit.min, limit.tiny, smallest, -smallest, limit.eps], of)


def with_scalars(op: OpDef, dtype: str, attributes: Mapping[str, Any]) -> Iterator[Case]:
    """A Python scalar at one of the positions, of each type."""
    for count in counts(op):
        for scalar_at in range(min(count, 1), count):
            for scalar in SCALARS:
                operands = [operand(op, position, dtype, (3, 4), strided=False) for position in range(count)]
                operands[scalar_at] = scalar
                yield Case(op.name, f"a scalar in place {scalar_at}", tuple(operands), attributes)


def all_ops() -> list[OpDef]:
    """Every op, by name."""
    return [REGISTRY[name] for name in sorted(REGISTRY)]
