"""From a call to a message: how a session issues ops.

A call infers its results' metas here, so that wrong shapes, dtypes or attributes raise an error at the user's line;
then it appends one message to the `outbox`, which decides when a batch leaves. `signatures` makes a call that was seen
before one dictionary lookup.

There are two entry points: `Calls.operate` (a tensor, and perhaps another operand: operators, views, and functions like
them), and `call` (everything). A `Calls` belongs to one session but has no reference to the session: the session owns
it, and the tensors own the session. So each entry point takes the session from its first tensor, or as an argument.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.ops.random import check_seed
from ...interpreter.schema.opdef import FrozenAttributes, OpDef, find
from ...interpreter.schema.promotion import WIRE_INTEGERS, check_scalars
from ...interpreter.schema.targets import check_distinct
from ...interpreter.types.meta import Meta, OperandMeta, Scalar
from ...interpreter.wire.fields import HOST
from ...interpreter.wire.messages import CALL, Hint, ToDevice, encode_message
from ..locations.locations import HANDLED, located
from ..locations.tracebacks import MEANT, hide, hides, signed, too_many
from ..outbox.current import CURRENT, capture_of, plain_of, refuse_captured
from ..outbox.outbox import Outbox
from ..tensor.operators import OPERANDS, SCALARS
from ..tensor.reading import forget
from ..tensor.tensor import Tensor
from .checks import check_host, device_of, own
from .handlers import DEFAULT_HANDLER, Handler, Invocation
from .signatures import Entry, SignatureKey, Signatures

if TYPE_CHECKING:
    from ..session.session import Session

new = object.__new__
SMALL = 127  # ints up to this fit every dtype
LISTS = frozenset((list, tuple))
PLAIN = frozenset((bool, int, float, str, type(None)))
UNKNOWN: tuple[Any, tuple[Any, ...]] = (None, ())  # a call that has to be checked before it has a key
ITEMS = frozenset((int, str, type(None)))  # of a tuple: values of different types here are never equal


class Calls:
    """Issues the ops of one session.

    `native`: the handlers are the default ones, so that calls may go straight to the outbox. `_known`: the entries to
    look such calls up in, those of `_signatures`; empty while there is another handler, and while a thread captures a
    routine: then all calls of the session pass `execute`, which records those of that thread.
    """

    __slots__ = ("_captures", "_handler", "_known", "_outbox", "_signatures", "_sites", "_span", "native")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._signatures = Signatures(outbox)
        self._sites = outbox.locations.sites
        self._span = outbox.locations.spans.get
        self._captures = 0  # of routines, by threads that are in the middle of one
        self.handler = DEFAULT_HANDLER

    @property
    def handler(self) -> Handler:
        """The chain of handlers that every op passes."""
        return self._handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        if not callable(handler):
            message = f"a handler is called with an Invocation; {type(handler).__name__} cannot be called"
            raise located(MetadataTypeError(message))
        self._handler: Handler = handler
        self.native = handler is DEFAULT_HANDLER
        self.capturing(0)

    def capturing(self, more: int) -> None:
        """Count the threads that capture a routine: 1 more, or -1."""
        with self._outbox.lock, SHIELD:
            self._captures += more
            known = self.native and not self._captures
            self._known: dict[Any, Entry] = self._signatures.entries if known else {}

    # -- the hot path ---------------------------------------------------------------------------------------------

    def operate(  # noqa: PLR0915 - calls would cost more than statements
        self,
        op: OpDef,
        x: Tensor,
        y: Tensor | Scalar | None = None,
        in_place: bool = False,
        attributes: FrozenAttributes = (),
    ) -> Tensor:
        """An op of a tensor, and of another operand unless that is None. The hot path: one lookup, message, handle."""
        session = x._session
        if type(y) is Tensor:
            key: Any = (op, x._meta, y._meta, x._home, in_place)
            operands: Any = (x._id, y._id)
            if y._session is not session:
                own(session, y)
        elif y is None:
            key = (op, x._meta, x._home, attributes)
            operands = (x._id,)
        else:
            key = (op, x._meta, type(y), x._home, in_place)
            operands = (x._id, y)
        entry = self._known.get(key)
        if entry is None or (entry.integers and not 0 <= y <= SMALL):  # type: ignore[operator]
            return self._first_time(op, x, y, attributes, in_place, key)
        outbox = self._outbox
        if entry.heavy:
            outbox.make_way()
        location: Any = 0
        try:
            frame = sys._getframe(2)
        except ValueError:  # called from C, with no Python frame below
            pass
        else:
            location = self._sites.get((id(frame.f_code), frame.f_lasti))
            if type(location) is not int:  # it is not known, or needs its callers
                location = outbox.locations.site(frame)
        span = self._span()
        if span is not None:
            location |= span.bits or outbox.locations.spans.number(span)
        if in_place:
            made = x
        else:
            made = new(Tensor)  # without `__init__`, whose call costs as much as all of its lines
            made._session = session
            made._meta = entry.output
            made._home = entry.home
            made._reading = None
        with outbox.lock:
            if not entry.alive:
                return self._first_time(op, x, y, attributes, in_place, key)
            if in_place:
                id_ = x._id
                if x._reading is not None:
                    forget(x)
            else:
                outbox.ids = id_ = outbox.ids + 1
                made._id = id_  # before the call is there: an exception from outside finds no call without a handle
            messages = outbox.messages
            messages.append([CALL, entry.number, operands, (id_,), 0, location])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        if session._opened and not in_place and (context := session._innermost()) is not None:
            context._hold(made)
        return made

    def _issue(
        self,
        session: Session,
        entry: Entry,
        operands: tuple[Any, ...],
        out: Sequence[Tensor] | None,
        location: int,
    ) -> list[Tensor] | None:
        """Append one call to the batch; None if another thread's signature has taken the entry's number."""
        outbox, outputs = self._outbox, entry.outputs
        if entry.heavy:
            outbox.make_way()
        if out is None and len(outputs) != 1:
            return self._issue_many(session, entry, operands, location)
        with outbox.lock:
            if not entry.alive:
                return None
            if out is not None:
                for target in out:
                    forget(target)
                made = list(out)
            else:
                outbox.ids = id_ = outbox.ids + 1
                made = [Tensor(session, id_, entry.output, entry.home)]  # before the call is there: see `operate`
            messages = outbox.messages
            messages.append([CALL, entry.number, operands, tuple([each._id for each in made]), 0, location])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        return made

    def _issue_many(
        self, session: Session, entry: Entry, operands: tuple[Any, ...], location: int
    ) -> list[Tensor] | None:
        """`_issue` for calls with several results, or none."""
        outbox, outputs = self._outbox, entry.outputs
        with outbox.lock, SHIELD:
            if not entry.alive:
                return None
            ids = tuple([outbox.new_id() for _ in outputs])
            outbox.messages.append([CALL, entry.number, operands, ids, 0, location])
            made = [Tensor(session, id_, meta, entry.home) for id_, meta in zip(ids, outputs, strict=True)]
        outbox.appended()
        return made

    # -- the long way ----------------------------------------------------------------------------------------------

    def _first_time(
        self, op: OpDef, x: Tensor, y: Any, attributes: FrozenAttributes, in_place: bool, key: Any
    ) -> Tensor:
        """A call that was not seen before; see `_carry_out`."""
        operands = (x,) if y is None else (x, y)
        invocation = Invocation(x._session, op, operands, attributes, (x,) if in_place else None, None)
        try:
            return self._carry_out(invocation, key)[0]
        except MetadataError as error:
            raise located(error) from None

    def _carry_out(self, invocation: Invocation, key: Any) -> list[Tensor]:
        """Pass the invocation through the handlers, unless the default ones have nothing to do.

        In that case the next call with `key`, unless None, goes straight to its signature.
        """
        if self.native and self.supports(invocation.op, self.place(invocation)):
            return self.execute(invocation, key)
        outer = HANDLED.frame
        HANDLED.frame = outer or sys._getframe()
        try:
            return self._handler(invocation)
        finally:
            HANDLED.frame = outer

    def supports(self, op: OpDef, device: str) -> bool:
        """Does the device have a kernel for the op?"""
        missing = self._outbox.transport.devices.get(device)
        return missing is None or op.name not in missing

    def place(self, invocation: Invocation) -> str:
        """The device that an invocation is to run on."""
        if invocation.device is not None:
            return device_of(invocation.session, invocation.device)
        tensors = (*(invocation.out or ()), *invocation.inputs)
        homes = (each.device for each in tensors if isinstance(each, Tensor))
        return next(homes, None) or device_of(invocation.session, None)

    def execute(self, invocation: Invocation, alias: Any = None) -> list[Tensor]:
        """Send an op as it is to its device: what the innermost handler does. `alias`: another key for its entry.

        Recorded instead if this thread captures a routine.
        """
        capture = CURRENT.capture
        if capture is not None and capture.session is invocation.session:
            return capture.record(invocation)
        key = signature_of(invocation, self.place(invocation))
        location = self._outbox.locations.issued()
        while True:
            with self._outbox.lock, SHIELD:
                entry = self._signatures.entries.get(key) or self._signatures.add(key)
                if alias is not None:
                    self._signatures.alias(alias, entry)
            if entry.integers:
                floats = as_floats(key, invocation.inputs)
                if floats is not None:
                    return self.execute(invocation._replace(inputs=floats))
                check_scalars(key.op.name, invocation.inputs, key.metas, dict(key.attributes))
            operands = tuple([value._id if type(value) is Tensor else value for value in invocation.inputs])
            issued = self._issue(invocation.session, entry, operands, invocation.out, location)
            if issued is not None:
                self._outbox.appended()  # in front of the call its signature may be the batch's first message
                return issued

    def to_device(self, tensor: Tensor, device: str) -> Tensor:
        """A tensor with the same value and another home."""
        session = tensor._session
        home = device_of(session, device)
        own(session, tensor)
        outbox = self._outbox
        capture = capture_of(outbox)
        if capture is not None:
            return capture.move(tensor, home)
        with outbox.lock, SHIELD:
            id_, location = outbox.new_id(), outbox.locations.issued()
            outbox.messages.append(encode_message(ToDevice(tensor._id, id_, home, location)))
            made = Tensor(session, id_, tensor._meta, home)
        outbox.appended()
        return made

    def hint(self, tensor: Tensor, what: str, device: str | None = None) -> None:
        """Say where the tensor's value had better be, at this place in program order."""
        session, outbox = tensor._session, self._outbox
        place = device or ""
        if device == HOST:
            check_host(session)
        elif device is not None:
            place = device_of(session, device)
        own(session, tensor)
        refuse_captured(outbox, f"{what}: nothing can be said about where a value is")
        with outbox.lock, SHIELD:
            location = outbox.locations.issued()
            outbox.messages.append(encode_message(Hint(tensor._id, what, place, location)))
        outbox.appended()


@hides
@signed
def call(
    session: Session,
    name: str,
    inputs: Sequence[Tensor | Scalar] = (),
    attributes: Mapping[str, Any] | None = None,
    *more: Never,
    out: Sequence[Tensor] | None = None,
    device: str | None = None,
) -> list[Tensor]:
    """Issue one op by name; returns its results at once, as handles.

    The op runs on `device`, else on the home of `out`, else on the home of its first tensor operand, else on the
    first device. MetadataError, at this line, for wrong shapes, dtypes, attributes, devices and names.
    """
    try:
        if more:
            raise located(MetadataTypeError(too_many("call", 1, 3, 3 + len(more))))
        calls = session._calls
        key, operands = call_key(session, name, inputs, attributes, out, device) if calls.native else UNKNOWN
        entry = None if key is None else calls._known.get(key)
        if entry is not None and not (entry.integers and has_large(inputs)):
            issued = calls._issue(session, entry, operands, out, calls._outbox.locations.here())
            if issued is not None:
                return issued
        return call_anew(session, name, inputs, attributes, out, device, key)
    except MEANT as error:
        hide(error)
        raise


def call_anew(
    session: Session, name: str, inputs: Any, attributes: Any, out: Any, device: str | None, key: Any
) -> list[Tensor]:
    """`call`, if it was not made before."""
    try:
        capture = capture_of(session._outbox)
        op = find(name if capture is None else plain_of(name))
        frozen = op.freeze(attributes if capture is None else capture.attributes(attributes))
        operands, targets = listed(op, "operands", inputs), None if out is None else listed(op, "out=", out)
        return session._calls._carry_out(Invocation(session, op, operands, frozen, targets, device), key)
    except MetadataError as error:
        raise located(error) from None


def call_key(
    session: Session, name: str, inputs: Any, attributes: Any, out: Any, device: str | None
) -> tuple[Any, tuple[Any, ...]]:
    """A key that tells a call from others before anything is checked, and its operands; `UNKNOWN` if there is none."""
    if type(name) is not str or type(inputs) not in LISTS or not (out is None or are_tensors(out)):
        return UNKNOWN
    if device is not None and type(device) is not str:
        return UNKNOWN
    home = out[0]._home if out and device is None else device
    metas: list[Any] = []
    operands: list[Any] = []
    for value in inputs:
        if type(value) is Tensor:
            if value._session is not session:
                return UNKNOWN
            metas.append(value._meta)
            operands.append(value._id)
            if home is None:
                home = value._home
        elif type(value) in SCALARS:
            metas.append(type(value))
            operands.append(value)
        else:
            return UNKNOWN
    targets = None
    if out is not None:
        if any(target._session is not session for target in out):
            return UNKNOWN
        if len(out) > 1 and len(set(map(id, out))) < len(out):
            return UNKNOWN  # the long way refuses it
        targets = tuple([target._meta for target in out])
    if attributes is None:
        return (name, tuple(metas), home, targets), tuple(operands)
    if type(attributes) is not dict:
        return UNKNOWN
    kinds: Any = tuple(map(type, attributes.values()))  # 1, 1.0 and True are equal, but not the same attribute
    if not PLAIN.issuperset(kinds) and not all(map(is_plain, attributes.values())):
        return UNKNOWN
    return (name, tuple(metas), home, targets, tuple(attributes.items()), kinds), tuple(operands)


def signature_of(invocation: Invocation, device: str) -> SignatureKey:
    """The key of the invocation's signature; raises for operands that are not allowed."""
    session, op, inputs, frozen, out, _ = invocation
    metas = tuple([operand_meta(session, op, value) for value in inputs])
    targets = None if out is None else tuple([own(session, target)._meta for target in out])
    check_distinct(op.name, out or ())
    return SignatureKey(op, metas, frozen, device, targets)


def operand_meta(session: Session, op: OpDef, value: Any) -> OperandMeta | None:
    """The meta of a tensor of the session, or the type of a number."""
    if isinstance(value, Tensor):
        return own(session, value)._meta
    if type(value) in SCALARS:
        kind: OperandMeta = type(value)
        return kind
    if type(value) in OPERANDS:
        counts_as: OperandMeta = value._operand_meta(session)
        if counts_as in SCALARS:
            return counts_as
    several = isinstance(value, list | tuple | range)
    instead = "make a tensor of it: session.asarray(...)" if several else "use a tensor (asarray) or a number"
    raise MetadataTypeError(f"{op.name}: {value.__class__.__name__} is no operand; {instead}", op=op.name)


def as_floats(key: SignatureKey, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """The operands, with floats for ints too large for a message, if the dtype is floating-point; else None."""
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
    """Are the values a list or tuple of handles?"""
    return isinstance(values, list | tuple) and all(type(value) is Tensor for value in values)


def listed(op: OpDef, what: str, values: Any) -> tuple[Any, ...]:
    """A sequence as a tuple; MetadataError if it is none."""
    if isinstance(values, Iterable) and not isinstance(values, Tensor):
        try:
            return tuple(values)
        except TypeError:  # of an array without dimensions
            pass
    raise MetadataTypeError(f"{op.name}: {what} is a list of tensors, not {type(values).__name__}", op=op.name)
