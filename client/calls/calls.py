"""From a call to a message: how a session issues ops.

A call infers its results' metas here, so that wrong shapes, dtypes or attributes raise an error at the user's line;
then it appends one message to the `outbox`, which decides when a batch is sent. `signatures` reduces a call that was
made before to one dictionary lookup.

There are two entry points: `Calls.operate` for one tensor and perhaps another operand (operators, views, and similar
functions), and `call` in `by_name` for everything. A `Calls` belongs to one session but has no reference to its core,
since the core owns it, and the tensors own the core. So each entry point takes the core from its first tensor, or as an
argument.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError
from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ...interpreter.schema.own_op import check_daemon_has
from ...interpreter.schema.promotion import check_scalars
from ...interpreter.types.device_names import kind_of
from ...interpreter.types.meta import Scalar
from ...interpreter.wire.fields import HOST
from ...interpreter.wire.message_kinds import CALL
from ...interpreter.wire.messages import Hint, ToDevice, encode_message
from ..core.core import Core
from ..locations.locations import HANDLED, located
from ..outbox.current import CURRENT, capture_of, refuse_captured
from ..outbox.outbox import Outbox
from ..tensor.operators import GLOBALS
from ..tensor.reading import forget
from ..tensor.tensor import Tensor
from .by_name import call
from .checks import check_host, device_of, own, refuse_other_nodes
from .op_invocation import HandlerChain, OpInvocation, is_global
from .signatures import MAX_UNCHECKED_INT, KnownSignature, SignatureKey, Signatures, as_floats, signature_of

new = object.__new__


class Calls:
    """Issues the ops of one session.

    `chain`: the handlers that every op passes. `native`: they are the default ones, so calls may go straight to the
    outbox. `known`: the entries in which such calls are looked up, those of `_signatures`. It is empty while there is
    another handler, and while a thread captures a routine: then all calls of the session pass `execute`, which records
    those of that thread.
    """

    call = staticmethod(call)  # for tensors, which know no room above their own

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._signatures = Signatures(outbox)
        self._sites = outbox.locations.sites
        self._span = outbox.locations.spans.get
        self._captures = 0  # number of threads that capture a routine

    def use(self, chain: HandlerChain, *, native: bool) -> None:
        """Make every op pass these handlers. `native`: they are the default ones."""
        self.chain = chain
        self.native = native
        self.capturing(0)

    def capturing(self, more: int) -> None:
        """Add 1 or -1 to the number of threads that capture a routine."""
        with self._outbox.lock, SHIELD:
            self._captures += more
            known = self.native and not self._captures
            self.known: dict[Any, KnownSignature] = self._signatures.entries if known else {}

    # -- the hot path ---------------------------------------------------------------------------------------------

    def operate(  # noqa: PLR0915 - calls would cost more than statements
        self,
        op: OpDef,
        x: Tensor,
        y: Tensor | Scalar | None = None,
        in_place: bool = False,
        attributes: FrozenAttributes = (),
    ) -> Tensor:
        """An op of a tensor, and of another operand unless that is None: one lookup, one message, one handle.

        The hot path: an op that is known, of two tensors, with a new result and no span. Other branches are rare.
        """
        # Find the signature.
        core = x._core
        if type(y) is Tensor:
            key: Any = (op, x._meta, y._meta, x._home, in_place)
            operands: Any = (x._id, y._id)
            if y._core is not core:
                own(core, y, x)
        elif y is None:
            key = (op, x._meta, x._home, attributes)
            operands = (x._id,)
        else:
            key = (op, x._meta, type(y), x._home, in_place)
            operands = (x._id, y)
        entry = self.known.get(key)
        if entry is None or (entry.integers and not 0 <= y <= MAX_UNCHECKED_INT):  # type: ignore[operator]
            return self._first_time(op, x, y, attributes, in_place, key)

        # Find the line of the user's code.
        outbox = self._outbox
        if entry.heavy:
            outbox.make_way()
        location: Any = 0
        try:
            frame = sys._getframe(2)  # noqa: SLF001 - the interpreter's own
        except ValueError:  # called from C, with no Python frame below
            pass
        else:
            location = self._sites.get((id(frame.f_code), frame.f_lasti))
            if type(location) is not int:  # unknown, or dependent on its callers
                location = outbox.locations.site(frame)
        span = self._span()
        if span is not None:
            location |= span.bits or outbox.locations.spans.number(span)

        # Make the handle, and append the message.
        if in_place:
            made = x
        else:
            made = new(Tensor)  # without `__init__`, whose call costs as much as all of its lines
            made._core = core
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
                made._id = id_  # set first, so that an exception from outside finds no call without a handle
            messages = outbox.messages
            messages.append([CALL, entry.number, operands, (id_,), 0, location])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        if core.opened and not in_place and (scope := core.innermost()) is not None:
            scope.hold(made)
        return made

    def issue(
        self,
        core: Core,
        entry: KnownSignature,
        operands: tuple[Any, ...],
        out: Sequence[Tensor] | None,
        location: int,
    ) -> list[Tensor] | None:
        """Append one call to the batch; None if another thread's signature has taken the entry's number."""
        outbox, outputs = self._outbox, entry.outputs
        if entry.heavy:
            outbox.make_way()
        if out is None and len(outputs) != 1:
            return self._issue_many(core, entry, operands, location)
        with outbox.lock:
            if not entry.alive:
                return None
            if out is not None:
                for target in out:
                    forget(target)
                made = list(out)
            else:
                outbox.ids = id_ = outbox.ids + 1
                made = [Tensor(core, id_, entry.output, entry.home)]  # before the call is appended: see `operate`
            messages = outbox.messages
            messages.append([CALL, entry.number, operands, tuple([each._id for each in made]), 0, location])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        return made

    def _issue_many(
        self, core: Core, entry: KnownSignature, operands: tuple[Any, ...], location: int
    ) -> list[Tensor] | None:
        """`issue` for ops with several results, or none."""
        outbox, outputs = self._outbox, entry.outputs
        with outbox.lock, SHIELD:
            if not entry.alive:
                return None
            ids = tuple([outbox.new_id() for _ in outputs])
            outbox.messages.append([CALL, entry.number, operands, ids, 0, location])
            made = [Tensor(core, id_, meta, entry.home) for id_, meta in zip(ids, outputs, strict=True)]
        outbox.appended()
        return made

    # -- the long way ----------------------------------------------------------------------------------------------

    def _first_time(
        self, op: OpDef, x: Tensor, y: Any, attributes: FrozenAttributes, in_place: bool, key: Any
    ) -> Tensor:
        """Issue a call that was not made before; see `carry_out`."""
        core = x._core
        if type(x) in GLOBALS:
            return core.global_calls.operate(op, x, y, in_place, attributes)
        if type(y) in GLOBALS:
            return core.global_calls.operate_anew(op, x, y, attributes, in_place)
        operands = (x,) if y is None else (x, y)
        invocation = OpInvocation(op, operands, attributes, (x,) if in_place else None, None)
        try:
            return self.carry_out(core, invocation, key)[0]
        except MetadataError as error:
            raise located(error) from None

    def carry_out(self, core: Core, invocation: OpInvocation, key: Any) -> list[Tensor]:
        """Pass the invocation through the handlers, unless the default ones have nothing to do.

        In that case the next call with `key`, unless None, goes straight to its signature.
        """
        if is_global(core, invocation):
            return core.global_calls.carry_out(core, invocation, key)
        if self.native and self.supports(invocation.op, self.place(core, invocation)):
            return self.execute(core, invocation, key)
        outer = HANDLED.frame
        HANDLED.frame = outer or sys._getframe()  # noqa: SLF001 - the interpreter's own
        try:
            return self.chain(invocation)
        finally:
            HANDLED.frame = outer

    def entry(self, key: SignatureKey) -> KnownSignature | None:
        """The entry of a signature that was sent, if its number still denotes it."""
        return self._signatures.entries.get(key)

    def supports(self, op: OpDef, device: str) -> bool:
        missing = self._outbox.transport.devices.get(device)
        return (missing is None or op.name not in missing) and op.serves(kind_of(device))

    def place(self, core: Core, invocation: OpInvocation) -> str:
        """The device that will run an invocation."""
        if invocation.device is not None:
            return device_of(core, invocation.device)
        tensors = (*(invocation.out or ()), *invocation.inputs)
        homes = (each.device for each in tensors if isinstance(each, Tensor))
        return next(homes, None) or device_of(core, None)

    def execute(self, core: Core, invocation: OpInvocation, alias: Any = None) -> list[Tensor]:
        """Send an op as it is to its device, as the innermost handler does. `alias`: another key for its entry.

        If this thread captures a routine, the op is recorded instead.
        """
        if is_global(core, invocation):
            return core.global_calls.carry_out(core, invocation)
        there = self._outbox.transport.own_ops
        if invocation.op.own is not None and there is not None:
            check_daemon_has(invocation.op.name, invocation.op.own, there)
        capture = CURRENT.capture
        if capture is not None:
            refuse_other_nodes(capture.core, core)
            if capture.core is core:
                return capture.record(invocation)
        key = signature_of(core, invocation, self.place(core, invocation))
        location = self._outbox.locations.issued()
        while True:
            with self._outbox.lock, SHIELD:
                entry = self._signatures.entries.get(key) or self._signatures.add(key)
                if alias is not None:
                    self._signatures.alias(alias, entry)
            if entry.integers:
                floats = as_floats(key, invocation.inputs)
                if floats is not None:
                    return self.execute(core, invocation._replace(inputs=floats))
                check_scalars(key.op.name, invocation.inputs, key.metas, dict(key.attributes))
            operands = tuple([value._id if type(value) is Tensor else value for value in invocation.inputs])
            issued = self.issue(core, entry, operands, invocation.out, location)
            if issued is not None:
                self._outbox.appended()  # if the batch is empty, the signature is its first message, before the call
                return issued

    def to_device(self, tensor: Tensor, device: str | Placement) -> Tensor:
        core = tensor._core
        if isinstance(device, Placement):
            return core.global_calls.to_device(tensor, device)
        if core.cluster is not None and core.cluster.is_elsewhere(core, device):
            return core.cluster.moved(tensor, device)
        home = device_of(core, device)
        own(core, tensor)
        outbox = self._outbox
        capture = capture_of(outbox)
        if capture is not None:
            return capture.move(tensor, home)
        with outbox.lock, SHIELD:
            id_, location = outbox.new_id(), outbox.locations.issued()
            outbox.messages.append(encode_message(ToDevice(tensor._id, id_, home, location)))
            made = Tensor(core, id_, tensor._meta, home)
        outbox.appended()
        return made

    def hint(self, tensor: Tensor, what: str, device: str | None = None) -> None:
        """Send a hint about the placement of the tensor's value, at this point in program order."""
        core, outbox = tensor._core, self._outbox
        target = device or ""
        if device == HOST:
            check_host(core)
        elif device is not None:
            target = device_of(core, device)
        own(core, tensor)
        refuse_captured(outbox, f"{what}: placement hints cannot be given")
        with outbox.lock, SHIELD:
            location = outbox.locations.issued()
            outbox.messages.append(encode_message(Hint(tensor._id, what, target, location)))
        outbox.appended()
