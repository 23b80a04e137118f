"""The signature of an instruction as plain values that records keep: metas, attributes, work.

Made once per plan, not per instruction. Only tuples, texts and numbers, since the garbage collector walks everything
else that the trace's ring holds. Nothing here grows with what a client sends beyond the number of its operands.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ...interpreter.schema.indexing import spelt
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ...interpreter.types.meta import Meta, OperandMeta

# Compiled code takes a tuple apart that is declared with its fields, and makes another one for each record. These are
# kept whole: records share them.
# (shape, dtype); of a Python scalar (None, its type), of a meta that is not known (None, "").
PlainMeta: TypeAlias = tuple[Any, ...]
# (metas of the operands, metas of the results, attributes, work)
Signature: TypeAlias = tuple[Any, ...]

UNKNOWN: PlainMeta = (None, "")
NOTHING: Signature = ((), (), "", 0)

# What made a storage: the label of the instruction, and what it was of.
Maker: TypeAlias = tuple[Any, ...]
UNMADE: Maker = ("", NOTHING)
UPLOAD: Maker = ("upload", NOTHING)
SHARED: Maker = ("share", NOTHING)

INDEX = "index"  # the attribute of all ops that select, in its normal form
_LONGEST = 200  # characters of all attributes
_ITEMS, _DEPTH, _TEXT = 8, 3, 40  # of one attribute's value


def plain(meta: OperandMeta | None) -> PlainMeta:
    """A meta, a scalar's type, or a meta that is not known, as plain values."""
    if meta is None:
        return UNKNOWN
    return meta.plain if isinstance(meta, Meta) else (None, meta.__name__)


def attributes_of(op: OpDef, attributes: FrozenAttributes) -> str:
    """`axis=(0, 1), keepdims=True`, `x[tensor, 0:5]`: what is not the default, at most `_LONGEST` characters."""
    given = [
        f"x[{spelt(value)}]" if name == INDEX else f"{name}={brief(value)}"
        for (name, value), attribute in zip(attributes, op.attributes, strict=True)
        if value != attribute.default
    ]
    text = ", ".join(given)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def call_text(op: OpDef, attributes: FrozenAttributes) -> str:
    """`cholesky`, `sum(axis=0)`, `advanced_getitem(x[tensor, 0:5])`: a call in an error."""
    given = attributes_of(op, attributes)
    return f"{op.name}({given})" if given else op.name


def brief(value: Any, depth: int = _DEPTH) -> str:
    """An attribute's value for people; long ones are cut."""
    if isinstance(value, tuple):
        if not depth:
            return "(...)"
        items = [brief(item, depth - 1) for item in value[:_ITEMS]] + ["..."] * (len(value) > _ITEMS)
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, str | bytes) and len(value) > _TEXT:
        return f"{value[:_TEXT]!r}..."
    return repr(value)
