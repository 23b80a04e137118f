"""Facts that follow from a record: the lengths of its phases, its operands, its bytes and operations.

Times are in nanoseconds, 0 for a phase that the instruction did not go through.

Operations are counted only where the count follows from the metas: products, sums, and arithmetic on real or complex
floats. For everything else the count is 0, "unknown". `Record.work` is not such a count, but the scheduler's estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...record import MetaRecord, Record

if TYPE_CHECKING:
    from ....model.signature import PlainMeta

_OPERANDS_SHOWN = 4
# One operation per element of the result.
_PER_RESULT = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "positive", "abs", "square", "sqrt", "reciprocal"}
    | {"maximum", "minimum", "where", "clip", "relu"}
)
# One operation per element of the operand.
_PER_OPERAND = frozenset({"sum", "prod", "mean", "max", "min", "cumulative_sum", "cumulative_prod"})


def operands_text(record: Record) -> str:
    """The metas and attributes of a record, such as `(128, 64) x (64, 256) float32`; empty if nothing is known."""
    return operands_and_attributes(record.inputs or record.outputs, record.attributes)


def operands_and_attributes(metas: Sequence[PlainMeta], attributes: str) -> str:
    return "  ".join(filter(None, (_metas([MetaRecord(*meta) for meta in metas]), attributes)))


def _metas(metas: Sequence[MetaRecord]) -> str:
    shown = metas[:_OPERANDS_SHOWN]
    more = f" and {len(metas) - len(shown)} more" if len(metas) > len(shown) else ""
    if len({meta.dtype for meta in metas}) == 1 and metas[0].dtype and None not in {meta.shape for meta in metas}:
        return f"{' x '.join(str(meta.shape) for meta in shown)}{more} {metas[0].dtype}"
    return " x ".join(map(meta_text, shown)) + more


def meta_text(meta: MetaRecord) -> str:
    """A meta as text: `(128, 64) float32`, `int` for a Python scalar, `?` for an unknown meta."""
    return (meta.dtype or "?") if meta.shape is None else f"{meta.shape} {meta.dtype}"


def elements(meta: MetaRecord) -> int:
    """The number of elements; 0 for scalars and unknown metas."""
    return 0 if meta.shape is None else math.prod(meta.shape)


def nbytes(meta: MetaRecord) -> int:
    """The bytes of a packed tensor with this meta."""
    return elements(meta) * width(meta.dtype)


def width(dtype: str) -> int:
    """The bytes of an element of this dtype."""
    digits = "".join(filter(str.isdigit, dtype))
    return int(digits) // 8 if digits else 1


def touched(record: Record) -> int:
    """The bytes of all operands and results; for a transfer or an access, the bytes that it moved."""
    return record.nbytes or sum(map(nbytes, record.inputs)) + sum(map(nbytes, record.outputs))


def operations(record: Record) -> int:
    """The floating-point operations of an instruction; 0 if unknown."""
    tensors = [meta for meta in record.inputs if meta.shape is not None]
    if not tensors or not record.outputs or not record.outputs[0].dtype.startswith(("float", "complex")):
        return 0
    count = _PRODUCTS.get(record.op)
    if count is not None:
        return (4 if record.outputs[0].dtype.startswith("complex") else 1) * count(tensors, record.outputs[0])
    if record.outputs[0].dtype.startswith("complex"):
        return 0
    if record.op in _PER_OPERAND:
        return elements(tensors[0])
    return elements(record.outputs[0]) if record.op in _PER_RESULT else 0


def _matmul(tensors: Sequence[MetaRecord], result: MetaRecord) -> int:
    shape = tensors[0].shape
    return 2 * elements(result) * shape[-1] if shape else 0


def _vecdot(tensors: Sequence[MetaRecord], _result: MetaRecord) -> int:
    return 2 * max(map(elements, tensors))


def _tensordot(tensors: Sequence[MetaRecord], result: MetaRecord) -> int:
    """Operations of a product of m*k by k*n elements, with m*n results."""
    left, right, out = elements(tensors[0]), elements(tensors[-1]), elements(result)
    return 2 * out * math.isqrt(left * right // out) if out else 0


_PRODUCTS: dict[str, Callable[[Sequence[MetaRecord], MetaRecord], int]] = {
    "matmul": _matmul,
    "vecdot": _vecdot,
    "tensordot": _tensordot,
    "outer": lambda _tensors, result: elements(result),
}


def rate(amount: int, ns: int) -> str:
    """An amount per nanosecond, which is a number of G per second, as text:

    `12.3`, `<0.001`; empty if either is unknown.
    """
    if not amount or ns <= 0:
        return ""
    found = amount / ns
    return "<0.001" if found < 0.001 else f"{found:.3g}" if found < 999.5 else f"{found:,.0f}"


def blocked(record: Record) -> int:
    """The time from received to ready, spent waiting for the sources of edges."""
    return between(record.received, record.ready)


def queued(record: Record) -> int:
    """The time from ready to started, spent waiting for memory or for earlier work on the stream."""
    return between(record.ready, record.started)


def ran(record: Record) -> int:
    """The time from the start to the end of the kernel, or of the copying."""
    return between(record.started, record.finished)


def between(begin: int, end: int) -> int:
    """The time between two stamps; 0 if one is missing."""
    return max(0, end - begin) if begin and end else 0


def as_dict(record: Record) -> dict[str, object]:
    """All fields of a record by name, also inside operands, edges and metas; and `of`, `touched`, `operations` and
    `ran`, which follow from them."""
    fields: dict[str, object] = record._asdict()
    for name in ("operands", "edges", "inputs", "outputs"):
        fields[name] = [part._asdict() for part in getattr(record, name)]
    fields["part"] = None if record.part is None else record.part._asdict()
    return fields | {
        "of": operands_text(record),
        "touched": touched(record),
        "operations": operations(record),
        "ran": ran(record),
    }
