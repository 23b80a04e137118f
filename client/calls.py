"""From a call to a message: the half of a session that issues ops.

A call infers its results' metas here, so that what is wrong with shapes, dtypes or attributes raises at the user's
line; then it appends one message to the `outbox`, which decides when a batch leaves. `signatures` makes a call that was
seen before one dictionary lookup.

Three ways in, which differ in what they have to find out: `_operate` (two operands, no attributes: operators and the
functions that are like them), `_operate_one` (one tensor), and `call` (everything).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..interpreter.errors import ConnectionLost, MetadataError, MetadataTypeError, ProtocolError, TensordError
from ..interpreter.ops.random import check_seed
from ..interpreter.schema.opdef import FrozenAttributes, OpDef, find
from ..interpreter.schema.promotion import WIRE_INTEGERS, check_scalars
from ..interpreter.types.meta import Meta, OperandMeta, Scalar
from ..interpreter.wire.forms import shown
from ..interpreter.wire.messages import CALL, TO_DEVICE
from .handlers import DEFAULT_HANDLER, Handler, Invocation
from .locations import describe, user_frame
from .operators import SCALARS
from .outbox.outbox import Outbox
from .reading import forget
from .signatures import Entry, SignatureKey, Signatures
from .tensor import Tensor

SMALL = 127  # ints up to this fit every dtype
LISTS = frozenset((list, tuple))
PLAIN = frozenset((bool, int, float, str, type(None)))
ITEMS = frozenset((int, str, type(None)))  # of a tuple: none of them equals one of another type


class Calls:
    """Issues ops for a session, which it is the greater half of: whoever is given a `Calls` has a `Session`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._drop = outbox.drop
        self._signatures = Signatures(outbox)
        self._entries = self._signatures.entries
        self._sites = outbox.locations.sites
        self._handler: Handler = DEFAULT_HANDLER
        self._native = True  # the default handlers: calls may go straight to the outbox

    @property
    def _transport(self) -> Any:
        return self._outbox.transport

    # -- ops -------------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        inputs: Sequence[Tensor | Scalar] = (),
        attributes: Mapping[str, Any] | None = None,
        *,
        out: Sequence[Tensor] | None = None,
        device: str | None = None,
    ) -> list[Tensor]:
        """Issue one op by name; its results at once, as handles.

        It runs on `device`, else on the home of `out`, else on the home of its first tensor operand, else on the
        first device. MetadataError, at this line, for wrong shapes, dtypes, attributes, devices and names.
        """
        key = self._call_key(name, inputs, attributes, out, device) if self._native else None
        entry = None if key is None else self._entries.get(key)
        if entry is not None and not (entry.integers and has_large(inputs)):
            issued = self._issue(entry, inputs, out, self._outbox.locations.number(user_frame(1)))
            if issued is not None:
                return issued
        op = self._find(name)
        try:
            frozen = op.freeze(attributes)
            operands, targets = listed(op, "operands", inputs), None if out is None else listed(op, "out=", out)
            invocation = Invocation(self, op, operands, frozen, targets, device)  # type: ignore[arg-type]  # a session
            return self._carry_out(invocation, key)
        except MetadataError as error:
            raise self._at_user(error, 1) from None

    def _call_key(self, name: str, inputs: Any, attributes: Any, out: Any, device: str | None) -> Any:
        """What tells a call from others before anything is checked; None if that is not cheap to say."""
        if type(name) is not str or type(inputs) not in LISTS or not (out is None or are_tensors(out)):
            return None
        if device is not None and type(device) is not str:
            return None
        home = out[0]._home if out and device is None else device
        metas: list[Any] = []
        for value in inputs:
            if type(value) is Tensor:
                if value._session is not self:
                    return None
                metas.append(value._meta)
                home = value._home if home is None else home
            elif type(value) in SCALARS:
                metas.append(type(value))
            else:
                return None
        targets = None
        if out is not None:
            if any(target._session is not self for target in out):
                return None
            targets = tuple([target._meta for target in out])
        if attributes is None:
            return (name, tuple(metas), home, targets)
        if type(attributes) is not dict:
            return None
        kinds: Any = tuple(map(type, attributes.values()))  # 1, 1.0 and True are equal, and not the same attribute
        if not PLAIN.issuperset(kinds) and not all(map(is_plain, attributes.values())):
            return None
        return (name, tuple(metas), home, targets, tuple(attributes.items()), kinds)

    def _carry_out(self, invocation: Invocation, key: Any) -> list[Tensor]:
        """The long way, through the handlers, unless there is nothing for the default ones to do.

        Then the next call with that key, if there is one, goes straight to its signature.
        """
        if self._native and self.supports(invocation.op, self.place(invocation)):
            return self.execute(invocation, key)
        return self._handler(invocation)

    def supports(self, op: OpDef, device: str) -> bool:
        """Has the device a kernel for the op?"""
        missing = self._transport.devices.get(device)
        return missing is None or op.name not in missing

    def place(self, invocation: Invocation) -> str:
        """The device that an invocation is to run on."""
        if invocation.device is not None:
            return self._device(invocation.device)
        tensors = (*(invocation.out or ()), *invocation.inputs)
        return next((t.device for t in tensors if isinstance(t, Tensor)), self._device(None))

    def execute(self, invocation: Invocation, alias: Any = None) -> list[Tensor]:
        """Send an op as it is to its device: what the innermost handler does. `alias`: another key to find it by."""
        device = self.place(invocation)
        key = self._signature(invocation, device)
        location = self._outbox.locations.number(user_frame(1))
        while True:
            with self._outbox.lock:
                entry = self._entries.get(key) or self._signatures.add(key)
                if alias is not None:
                    self._signatures.alias(alias, entry)
            if entry.integers:
                floats = as_floats(key, invocation.inputs)
                if floats is not None:
                    return self.execute(invocation._replace(inputs=floats))
                check_scalars(key.op.name, invocation.inputs, key.metas, dict(key.attributes))
            issued = self._issue(entry, invocation.inputs, invocation.out, location)
            if issued is not None:
                return issued

    def _signature(self, invocation: Invocation, device: str) -> SignatureKey:
        op, inputs, frozen, out, _ = invocation[1:]
        metas = tuple([self._operand_meta(op, value) for value in inputs])
        targets = None if out is None else tuple([self._own(target)._meta for target in out])
        return SignatureKey(op, metas, frozen, device, targets)

    def _issue(
        self, entry: Entry, inputs: Sequence[Any], out: Sequence[Tensor] | None, location: int
    ) -> list[Tensor] | None:
        """Append one call to the batch; None if another thread's signature has taken the entry's number meanwhile."""
        outbox = self._outbox
        if entry.heavy:
            outbox.make_way()
        operands = tuple([value._id if type(value) is Tensor else value for value in inputs])
        with outbox.lock:
            if not entry.alive:
                return None
            for target in out or ():
                forget(target)
            if out is None:
                first = outbox.ids + 1
                outbox.ids += len(entry.outputs)
                ids = tuple(range(first, outbox.ids + 1))
            else:
                ids = tuple([target._id for target in out])
            outbox.messages.append([CALL, entry.number, operands, ids, 0, location])
        outbox.appended()
        if out is not None:
            return list(out)
        made = zip(ids, entry.outputs, strict=True)
        return [Tensor(self, id_, meta, entry.home) for id_, meta in made]  # type: ignore[arg-type]  # a session

    def _operate(self, op: OpDef, x: Tensor, y: Tensor | Scalar, in_place: bool = False) -> Tensor:
        """A binary operator with the tensor on the left. The hot path: one lookup, one message, one handle."""
        if type(y) is Tensor:
            key: Any = (op, x._meta, y._meta, x._home, in_place)
            operands: Any = (x._id, y._id)
            if y._session is not self:
                self._own(y)
        else:
            key = (op, x._meta, type(y), x._home, in_place)
            operands = (x._id, y)
        entry = self._entries.get(key)
        if entry is None or not self._native or (entry.integers and not 0 <= y <= SMALL):  # type: ignore[operator]
            return self._first_time(op, (x, y), (), (x,) if in_place else None, key)
        outbox = self._outbox
        if entry.heavy:
            outbox.make_way()
        frame = sys._getframe(2)
        site = self._sites.get((id(frame.f_code), frame.f_lasti))
        location = outbox.locations.number(frame) if site is None else site[0]
        with outbox.lock:
            if not entry.alive:
                return self._first_time(op, (x, y), (), (x,) if in_place else None, key)
            if in_place:
                id_ = x._id
                if x._reading is not None:
                    forget(x)
            else:
                outbox.ids = id_ = outbox.ids + 1
            messages = outbox.messages
            messages.append([CALL, entry.number, operands, (id_,), 0, location])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        return x if in_place else Tensor(self, id_, entry.output, entry.home)  # type: ignore[arg-type]  # a session

    def _operate_one(self, op: OpDef, x: Tensor, attributes: FrozenAttributes = ()) -> Tensor:
        """An op of one tensor with frozen attributes: as `_operate`."""
        if type(x) is not Tensor or x._session is not self:
            self._own(x)
        key: Any = (op, x._meta, x._home, attributes)
        entry = self._entries.get(key)
        if entry is None or not self._native:
            return self._first_time(op, (x,), attributes, None, key)
        issued = self._issue(entry, (x,), None, self._outbox.locations.number(sys._getframe(2)))
        return self._first_time(op, (x,), attributes, None, key) if issued is None else issued[0]

    def _freeze(self, op: OpDef, attributes: Mapping[str, Any]) -> FrozenAttributes:
        try:
            return op.freeze(attributes)
        except MetadataError as error:
            raise self._at_user(error, 2) from None

    def _first_time(
        self,
        op: OpDef,
        operands: tuple[Any, ...],
        attributes: FrozenAttributes,
        out: tuple[Tensor, ...] | None,
        key: Any,
    ) -> Tensor:
        """What was not seen before; see `_carry_out`."""
        invocation = Invocation(self, op, operands, attributes, out, None)  # type: ignore[arg-type]  # a session
        try:
            return self._carry_out(invocation, key)[0]
        except MetadataError as error:
            raise self._at_user(error, 3) from None

    def _to_device(self, tensor: Tensor, device: str) -> Tensor:
        home = self._device(device)
        self._own(tensor)
        outbox = self._outbox
        with outbox.lock:
            id_, location = outbox.new_id(), outbox.locations.number(user_frame(1))
            outbox.messages.append([TO_DEVICE, tensor._id, id_, home, location])
        outbox.appended()
        return Tensor(self, id_, tensor._meta, home)  # type: ignore[arg-type]  # a session

    # -- checks ----------------------------------------------------------------------------------------------------

    def _device(self, name: str | None) -> str:
        devices = self._transport.devices
        if name is None:
            return str(next(iter(devices)))
        if type(name) is not str or name not in devices:
            known = ", ".join(devices)
            raise self._at_user(MetadataError(f"there is no device {shown(name)}; there are {known}"), 2)
        return name

    def _find(self, name: str) -> OpDef:
        try:
            return find(name)
        except TensordError as error:
            raise self._at_user(error, 2) from None

    def _own(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise self._at_user(MetadataTypeError(f"expected a tensor, got {type(tensor).__name__}; use asarray"), 2)
        if tensor._session is not self:
            raise self._at_user(foreign(tensor), 2)
        if tensor._released:
            raise self._at_user(ProtocolError(f"tensor {-tensor._id} was released"), 2)
        return tensor

    def _operand_meta(self, op: OpDef, value: Any) -> OperandMeta | None:
        if isinstance(value, Tensor):
            return self._own(value)._meta
        if type(value) in SCALARS:
            kind: OperandMeta = type(value)
            return kind
        raise MetadataTypeError(
            f"{op.name}: {type(value).__name__} is no operand; use a tensor (asarray) or a number", op=op.name
        )

    def _at_user(self, error: Any, depth: int) -> Any:
        """The error with the user's line."""
        if error.location is None:
            error.location = describe(user_frame(depth))
        return error


def foreign(tensor: Tensor) -> TensordError:
    """Why a tensor of another session is no operand."""
    if tensor._session.closed:
        return ConnectionLost("the tensor's session has ended, and the tensor with it")
    return MetadataError("the tensor belongs to another session; publish it and look it up")


def as_floats(key: SignatureKey, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """The operands with floats for ints that no message carries, where they meet floating-point numbers; else None."""
    if key.op.scalars is check_seed or all(type(value) is not int or value in WIRE_INTEGERS for value in inputs):
        return None
    name = dict(key.attributes).get("dtype")
    dtypes = [meta.dtype for meta in key.metas if isinstance(meta, Meta)] if name is None else [np.dtype(name)]
    if all(dtype.kind not in "fc" for dtype in dtypes):
        return None
    try:
        return tuple([float(each) if type(each) is int and each not in WIRE_INTEGERS else each for each in inputs])
    except OverflowError:  # not even a float holds it
        return None


def is_plain(value: Any) -> bool:
    """May an attribute's value, together with its type, stand for its normal form?"""
    if type(value) is tuple:
        return ITEMS.issuperset(map(type, value))
    return type(value) in PLAIN or isinstance(value, np.dtype)


def has_large(inputs: Sequence[Any]) -> bool:
    """Is there an int that some dtype might not hold?"""
    return any(type(value) is int and not 0 <= value <= SMALL for value in inputs)


def are_tensors(values: object) -> bool:
    """A list or tuple of handles?"""
    return isinstance(values, list | tuple) and all(type(value) is Tensor for value in values)


def listed(op: OpDef, what: str, values: Any) -> tuple[Any, ...]:
    """A sequence as a tuple; MetadataError if it is none."""
    if isinstance(values, Iterable) and not isinstance(values, Tensor):
        try:
            return tuple(values)
        except TypeError:  # of an array without dimensions
            pass
    raise MetadataTypeError(f"{op.name}: {what} is a list of tensors, not {type(values).__name__}", op=op.name)
