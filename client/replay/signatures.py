"""The ops of a recorded session, and the lines and spans of its location numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...interpreter.schema.infer import infer_once
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta
from ...interpreter.wire.locations import line_of, span_of
from ...interpreter.wire.messages import Location, Signature, Span
from ...interpreter.wire.metas import decode_meta


class RecordedOp(NamedTuple):
    """An op as a session calls it. `scalars`: which of its operands are numbers; `nbytes`: of its results, None if that
    depends on data."""

    op: str
    attributes: tuple[tuple[str, Any], ...]
    scalars: tuple[bool, ...]
    in_place: bool
    device: str
    nbytes: int | None


def recorded_op(signature: Signature) -> RecordedOp:
    """The op of a SIGNATURE, even if its attributes and metas are damaged."""
    try:
        attributes = tuple(dict(signature.attributes).items())
    except (TypeError, ValueError):
        attributes = ()
    scalars = tuple([isinstance(meta, str) for meta in signature.metas])
    in_place = signature.targets is not None
    return RecordedOp(signature.op, attributes, scalars, in_place, signature.device, bytes_of(signature, attributes))


def bytes_of(signature: Signature, attributes: tuple[tuple[str, Any], ...]) -> int | None:
    """The bytes of an op's results; None if they are not known beforehand, or the signature is damaged."""
    try:
        op = find(signature.op)
        metas = tuple([decode_meta(meta) for meta in signature.metas])
        outputs = infer_once(op, metas, op.freeze(dict(attributes)))
    except Exception:  # unchecked values may make an infer function raise anything
        return None
    return None if None in outputs else sum(meta.nbytes for meta in outputs if isinstance(meta, Meta))


class ReplayLocations:
    """The lines and the names of spans of a session, by number."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.spans: dict[int, tuple[str, ...]] = {}

    def keep(self, message: Location | Span) -> None:
        if isinstance(message, Location):
            self.lines[message.number] = message.text
        else:
            self.spans[message.number] = tuple(message.path)

    def line(self, location: int) -> str:
        return self.lines.get(line_of(location), "")

    def span(self, location: int) -> str:
        return "/".join(self.spans.get(span_of(location), ()))
