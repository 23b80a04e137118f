"""The signature of an instruction as plain values for trace records: metas, attributes, work.

A signature is made once per plan, not per instruction. It consists of tuples, strings and numbers only, since the
garbage collector visits everything else that the trace ring holds. Its size is bounded, except by the number of
operands.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ...interpreter.schema.indexing import spelt
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ...interpreter.types.meta import Meta, OperandMeta

# `tuple[Any, ...]` on purpose: compiled code would take apart a tuple that is declared with its fields, and make a new
# one for each record, but records share these tuples.
# (shape, dtype); (None, type) for a Python scalar, (None, "") for a pending meta.
PlainMeta: TypeAlias = tuple[Any, ...]
# (metas of the operands, metas of the results, attributes, work)
Signature: TypeAlias = tuple[Any, ...]

UNKNOWN: PlainMeta = (None, "")
NOTHING: Signature = ((), (), "", 0)

# The maker of a storage: the label of an instruction, and its signature.
Maker: TypeAlias = tuple[Any, ...]
UNMADE: Maker = ("", NOTHING)
UPLOAD: Maker = ("upload", NOTHING)
SHARED: Maker = ("share", NOTHING)

INDEX = "index"  # the attribute of all indexing ops, in its normal form
_MAX_TEXT_LENGTH = 200  # characters of all attributes
_MAX_ITEMS, _MAX_DEPTH, _MAX_VALUE_LENGTH = 8, 3, 40  # of one attribute's value


def plain(meta: OperandMeta | None) -> PlainMeta:
    """A meta, a scalar's type, or None for a pending meta, as plain values."""
    if meta is None:
        return UNKNOWN
    return meta.plain if isinstance(meta, Meta) else (None, meta.__name__)


def attributes_of(op: OpDef, attributes: FrozenAttributes) -> str:
    """The attributes that are not defaults, as in `axis=(0, 1), keepdims=True`, cut to `_MAX_TEXT_LENGTH`."""
    given = [
        f"x[{spelt(value)}]" if name == INDEX else f"{name}={brief(value)}"
        for (name, value), attribute in zip(attributes, op.attributes, strict=True)
        if value != attribute.default
    ]
    text = ", ".join(given)
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[: _MAX_TEXT_LENGTH - 3]}..."


def call_text(op: OpDef, attributes: FrozenAttributes) -> str:
    """The text of a call in an error, as in `sum(axis=0)`."""
    given = attributes_of(op, attributes)
    return f"{op.name}({given})" if given else op.name


def brief(value: Any, depth: int = _MAX_DEPTH) -> str:
    """The text of an attribute's value; a long one is cut."""
    if isinstance(value, tuple):
        if not depth:
            return "(...)"
        items = [brief(item, depth - 1) for item in value[:_MAX_ITEMS]] + ["..."] * (len(value) > _MAX_ITEMS)
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, str | bytes) and len(value) > _MAX_VALUE_LENGTH:
        return f"{value[:_MAX_VALUE_LENGTH]!r}..."
    return repr(value)
