"""The signatures that a session has sent, with the inferred metas of their results; one lookup finds them.

A call names its signature by a number. Numbers are limited and reused, the oldest first; an entry whose number was
given to another signature is no longer `alive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...interpreter.errors import MetadataTypeError
from ...interpreter.ops.random import check_seed
from ...interpreter.schema.infer import InferCache, check_distinct, check_targets
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ...interpreter.schema.promotion import WIRE_INTEGERS
from ...interpreter.types.meta import Meta, OperandMeta
from ...interpreter.wire.messages import Signature, encode_message
from ...interpreter.wire.metas import encode_meta
from ..core.core import Core
from ..outbox.outbox import Outbox
from ..tensor.operators import OPERANDS, SCALARS
from ..tensor.tensor import Tensor
from .checks import own
from .op_invocation import OpInvocation

MAX_UNCHECKED_INT = 127  # ints from 0 up to this fit every dtype
MAX_SIGNATURES = 4096  # short signatures that a session knows at a time
MANY_OPERANDS = 64  # a signature with more operands is a long one
MAX_LONG_SIGNATURES = 128  # known at a time: the machine has a quota for the operands of all signatures


class KnownSignature:
    """A session's knowledge of one signature. `alive`: until its number is given to another signature."""

    __slots__ = ("alive", "heavy", "home", "integers", "number", "output", "outputs")

    def __init__(
        self, number: int, outputs: tuple[Meta | None, ...], home: str, *, heavy: bool, integers: bool
    ) -> None:
        self.number = number
        self.outputs = outputs
        self.output = outputs[0] if outputs else None  # of ops with one result
        self.home = home
        self.heavy = heavy  # sent at once, since it does not run on the scheduler's thread
        self.integers = integers  # has an int operand, each value of which must be checked against the dtypes
        self.alive = True


class SignatureKey(NamedTuple):
    """A signature: everything in a call except the operands themselves."""

    op: OpDef
    metas: tuple[OperandMeta | None, ...]
    attributes: FrozenAttributes
    device: str
    targets: tuple[Meta | None, ...] | None


class Signatures:
    """Entries by signature, and by cheaper keys that callers make. The outbox's lock guards them."""

    def __init__(self, outbox: Outbox) -> None:
        self.entries: dict[Any, KnownSignature] = {}
        self._keys: dict[int, list[Any]] = {}  # number -> keys of its entry
        self._newest = [0, 0]  # the newest numbers of short and of long signatures
        self._infer = InferCache()
        self._outbox = outbox

    def add(self, key: SignatureKey) -> KnownSignature:
        """Infer a new signature, number it and send it; MetadataError if the op does not take these operands."""
        op, metas, attributes, device, targets = key
        outputs = inferred(self._infer, key)
        number = self._new_number(len(metas))
        self._outbox.scalars[number] = tuple(isinstance(meta, type) for meta in metas)
        wire = None if targets is None else tuple(encode_meta(meta) for meta in targets)
        encoded = tuple(encode_meta(meta) for meta in metas)
        self._outbox.messages.append(encode_message(Signature(number, op.name, attributes, encoded, device, wire)))
        entry = KnownSignature(number, outputs, device, heavy=self._is_heavy(key, outputs), integers=int in metas)
        self.alias(key, entry)
        return entry

    def alias(self, key: Any, entry: KnownSignature) -> None:
        """Add another key for the entry."""
        with self._outbox.lock:
            if entry.alive and self.entries.get(key) is not entry:
                self.entries[key] = entry
                self._keys.setdefault(entry.number, []).append(key)

    def _is_heavy(self, key: SignatureKey, outputs: tuple[Meta | None, ...]) -> bool:
        known = tuple(meta for meta in key.metas if meta is not None)
        if key.op.dynamic or len(known) < len(key.metas):
            return True
        return key.op.estimate(known, outputs, dict(key.attributes)) > int(self._outbox.transport.inline_work)

    def _new_number(self, operands: int) -> int:
        """The number of a new signature. Numbers are reused, oldest first, so that no table grows without bound."""
        many = operands > MANY_OPERANDS
        self._newest[many] += 1
        number = (
            MAX_SIGNATURES + self._newest[many] % MAX_LONG_SIGNATURES if many else self._newest[many] % MAX_SIGNATURES
        )
        forgotten = self._keys.pop(number, None)
        if forgotten is not None:
            self._outbox.renumber()
            for key in forgotten:
                entry = self.entries.pop(key, None)
                if entry is not None:
                    entry.alive = False
        return number


def inferred(cache: InferCache, key: SignatureKey) -> tuple[Meta | None, ...]:
    """The metas of an op's outputs; MetadataError if the op does not take these operands."""
    op, metas, attributes, _, targets = key
    if op.inputs and not op.attributes and all(isinstance(meta, type) for meta in metas):
        raise MetadataTypeError(f"{op.name}: at least one operand must be a tensor", op=op.name)
    outputs = cache.infer(op, metas, attributes)
    return outputs if targets is None else check_targets(op, outputs, targets)


def signature_of(core: Core, invocation: OpInvocation, device: str) -> SignatureKey:
    """The key of the invocation's signature; raises for operands that are not allowed."""
    op, inputs, frozen, out, _ = invocation
    beside = next((each for each in (*inputs, *(out or ())) if isinstance(each, Tensor) and each._core is core), None)
    metas = tuple([operand_meta(core, op, value, beside) for value in inputs])
    targets = None if out is None else tuple([own(core, target, beside)._meta for target in out])
    check_distinct(op.name, out or ())
    return SignatureKey(op, metas, frozen, device, targets)


def operand_meta(core: Core, op: OpDef, value: Any, beside: Any = None) -> OperandMeta | None:
    """The meta of a tensor of the session, or the type of a number. `beside`: another operand, for the error."""
    if isinstance(value, Tensor):
        return own(core, value, beside)._meta
    if type(value) in SCALARS:
        kind: OperandMeta = type(value)
        return kind
    if type(value) in OPERANDS:
        counts_as: OperandMeta = value._symbol.operand_meta(core)
        if counts_as in SCALARS:
            return counts_as
    several = isinstance(value, list | tuple | range)
    instead = "make a tensor from it: session.asarray(...)" if several else "use a tensor (asarray) or a number"
    raise MetadataTypeError(f"{op.name}: {value.__class__.__name__} is not an operand; {instead}", op=op.name)


def as_floats(key: SignatureKey, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """The operands, with floats for ints that are too large for a message, if the dtype is floating-point; else
    None."""
    if key.op.scalars is check_seed or all(type(value) is not int or value in WIRE_INTEGERS for value in inputs):
        return None
    name = dict(key.attributes).get("dtype")
    dtypes = [meta.dtype for meta in key.metas if isinstance(meta, Meta)] if name is None else [np.dtype(name)]
    if all(dtype.kind not in "fc" for dtype in dtypes):
        return None
    try:
        return tuple([float(each) if type(each) is int and each not in WIRE_INTEGERS else each for each in inputs])
    except OverflowError:  # too large even for a float
        return None
