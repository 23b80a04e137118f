"""A session: one client's connection to a virtual machine. Turns calls into messages; knows nothing of scheduling.

A call infers its results' metas here, so that what is wrong with shapes, dtypes or attributes raises at the user's
line; then it appends one message to the `outbox`, which decides when a batch leaves. `signatures` makes a call that was
seen before one dictionary lookup.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..interpreter.errors import MetadataError, ProtocolError, TensordError
from ..interpreter.messages import (
    CALL,
    CHAIN,
    EFFECT,
    FETCH,
    LOOKUP,
    NAMES,
    PUBLISH,
    QUERY,
    RESTART,
    SYNC,
    TO_DEVICE,
    UNPUBLISH,
    UPLOAD,
    WAIT,
)
from ..interpreter.meta import Meta, OperandMeta, Scalar
from ..interpreter.opdef import OpDef, find
from ..interpreter.promotion import check_scalar
from ..interpreter.segments import SHARED_FROM
from .handlers import DEFAULT_HANDLER, Handler, Invocation
from .locations import describe, user_frame
from .outbox import Outbox
from .signatures import Entry, SignatureKey, Signatures
from .tensor import Tensor
from .transport import ClosedTransport, Reply, Transport

SCALARS = (bool, int, float, complex)
SMALL = 127  # ints up to this fit every dtype
LISTS = frozenset((list, tuple))
PLAIN = frozenset((bool, int, float, str, type(None)))


class Session:
    """A connection to a virtual machine; a context manager. Made by `tensord.connect`."""

    def __init__(self, transport: Transport) -> None:
        self._outbox = Outbox(transport)
        self._drop = self._outbox.drop
        self._signatures = Signatures(self._outbox)
        self._entries = self._signatures.entries
        self._sites = self._outbox.locations.sites
        finalizer = weakref.finalize(self, transport.abandon)
        finalizer.atexit = False
        self._handler: Handler = DEFAULT_HANDLER
        self._native = True  # the default handlers: calls may go straight to the outbox
        self._chains: set[int] = set()
        self._cancels = 0
        self._counting = threading.RLock()  # a signal handler may cancel, too
        self._chain = self.chain()

    @property
    def _transport(self) -> Any:
        return self._outbox.transport

    # -- making tensors --------------------------------------------------------------------------------------------

    def asarray(self, values: ArrayLike | Tensor, device: str | None = None, *, dtype: Any = None) -> Tensor:
        """A tensor with a copy of those values, on its home `device` (the first one unless given). Returns at once.

        Takes what `numpy.asarray` takes; the caller's array may change afterwards. MetadataError for dtypes that
        tensord does not have and devices that do not exist.
        """
        home = self._device(device)
        if isinstance(values, Tensor):
            moved = self._own(values).to_device(home)
            return moved if dtype is None else moved.astype(dtype)
        try:
            source = values if is_numeric(values) else np.asarray(values, dtype=dtype)  # what cannot be raises here
            meta = Meta.of(source.shape, np.dtype(source.dtype if dtype is None else dtype))
            array = self._transport.new_array(meta)
            np.copyto(array, source, casting="unsafe")  # as `numpy.asarray` does
        except (TypeError, ValueError) as error:
            raise self._at_user(MetadataError(f"asarray: {error}", op="asarray"), 1) from None
        outbox = self._outbox
        if meta.nbytes > outbox.transport.inline_work:
            outbox.make_way()
        with outbox.lock:
            id_, location = outbox.new_id(), outbox.locations.number(user_frame(1))
            outbox.messages.append([UPLOAD, id_, meta.shape, meta.dtype.name, home, array, location])
        outbox.appended()
        return Tensor(self, id_, meta, home)

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
            invocation = Invocation(self, op, operands, frozen, targets, device)
            results = self._handler(invocation)
        except MetadataError as error:
            raise self._at_user(error, 1) from None
        if key is not None:
            self._remember(key, invocation)
        return results

    def _call_key(self, name: str, inputs: Any, attributes: Any, out: Any, device: str | None) -> Any:
        """What tells a call from others before anything is checked; None if that is not cheap to say."""
        if type(name) is not str or type(inputs) not in LISTS or not (out is None or are_tensors(out)):
            return None
        if device is not None and type(device) is not str:
            return None
        home = device or (out[0]._home if out else None)
        metas: list[Any] = []
        for value in inputs:
            if type(value) is Tensor:
                if value._session is not self:
                    return None
                metas.append(value._meta)
                home = home or value._home
            else:
                metas.append(type(value))
        targets = None
        if out is not None:
            if any(target._session is not self for target in out):
                return None
            targets = tuple([target._meta for target in out])
        if attributes is None:
            return (name, tuple(metas), home, targets)
        if type(attributes) is not dict:
            return None
        kinds = tuple(map(type, attributes.values()))  # 1, 1.0 and True are equal, and not the same attribute
        if not PLAIN.issuperset(kinds):
            return None
        return (name, tuple(metas), home, targets, tuple(attributes.items()), kinds)

    def _remember(self, key: Any, invocation: Invocation) -> None:
        """Let the next call with that key go straight to its signature, if that is all that it takes."""
        device = self.place(invocation)
        if self._native and self.supports(invocation.op, device):
            with self._outbox.lock:
                entry = self._entries.get(self._signature(invocation, device))
                if entry is not None:
                    self._signatures.alias(key, entry)

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

    def execute(self, invocation: Invocation) -> list[Tensor]:
        """Send an op as it is to its device: what the innermost handler does."""
        device = self.place(invocation)
        key = self._signature(invocation, device)
        location = self._outbox.locations.number(user_frame(1))
        while True:
            with self._outbox.lock:
                entry = self._entries.get(key) or self._signatures.add(key)
            if entry.integers:
                check_scalars(key, invocation.inputs)
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
        return [Tensor(self, id_, meta, entry.home) for id_, meta in zip(ids, entry.outputs, strict=True)]

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
            return self._operate_slowly(op, x, y, in_place, key)
        outbox = self._outbox
        if entry.heavy:
            outbox.make_way()
        frame = sys._getframe(2)
        site = self._sites.get((id(frame.f_code), frame.f_lasti))
        location = outbox.locations.number(frame) if site is None else site[0]
        with outbox.lock:
            if not entry.alive:
                return self._operate_slowly(op, x, y, in_place, key)
            if in_place:
                id_ = x._id
            else:
                outbox.ids = id_ = outbox.ids + 1
            messages = outbox.messages
            messages.append([CALL, entry.number, operands, (id_,), 0, location])
            size = len(messages)
        if size >= outbox.limit or size == 1:
            outbox.appended()
        return x if in_place else Tensor(self, id_, entry.output, entry.home)

    def _operate_slowly(self, op: OpDef, x: Tensor, y: Any, in_place: bool, key: Any) -> Tensor:
        invocation = Invocation(self, op, (x, y), (), (x,) if in_place else None, None)
        try:
            result = self._handler(invocation)[0]
        except MetadataError as error:
            raise self._at_user(error, 3) from None
        self._remember(key, invocation)
        return result

    def _to_device(self, tensor: Tensor, device: str) -> Tensor:
        home = self._device(device)
        self._own(tensor)
        outbox = self._outbox
        with outbox.lock:
            id_, location = outbox.new_id(), outbox.locations.number(user_frame(1))
            outbox.messages.append([TO_DEVICE, tensor._id, id_, home, location])
        outbox.appended()
        return Tensor(self, id_, tensor._meta, home)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what is unsent. Never waits for results, but may wait until the machine takes more."""
        self._outbox.flush()

    def _await(self, reply: Reply, timeout: float | None = None) -> Any:
        return self._outbox.await_reply(reply, timeout)

    def fetch(self, tensors: Iterable[Tensor]) -> list[NDArray[Any]]:
        """The values of several tensors as NumPy arrays (see `Tensor.numpy`), in one round trip instead of one each.

        Waits for all of them; raises the error of the first that has one, with the line of the call that failed.
        """
        owned = [self._own(tensor) for tensor in tensors]
        replies = self._outbox.ask_all([self._fetching(tensor) for tensor in owned])
        return [self._fetched(tensor, reply) for tensor, reply in zip(owned, replies, strict=True)]

    def _fetch(self, tensor: Tensor) -> NDArray[Any]:
        return self._fetched(tensor, self._outbox.ask(self._fetching(tensor)))

    def _fetching(self, tensor: Tensor) -> Callable[[int, int], list[Any]]:
        """What asks for the value; of a large one in the memory of the other side, held by an id of its own."""
        outbox, meta = self._outbox, tensor._meta
        holds = self._transport.maps and type(meta) is Meta and meta.nbytes >= SHARED_FROM

        def build(request: int, location: int) -> list[Any]:
            return [FETCH, tensor._id, request, location, outbox.new_id() if holds else 0]

        return build

    def _fetched(self, tensor: Tensor, reply: Reply) -> NDArray[Any]:
        result: NDArray[Any] = self._await(reply)
        if tensor._meta is None:
            tensor._meta = Meta.of(result.shape, result.dtype)
        return result

    def _query(self, what: str, *arguments: Any) -> Any:
        return self._await(self._outbox.ask(lambda request, _: [QUERY, what, arguments, request], located=False))

    def _tell(self, build: Callable[[int], list[Any]]) -> None:
        """Send a message and wait for its answer; inside `atomic` neither."""
        reply = self._outbox.tell(build)
        if reply is not None:
            self._await(reply)

    def _ask_ready(self, tensor: Tensor) -> Reply:
        return self._outbox.ask(lambda request, at: [WAIT, (tensor._id,), request, at])

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything issued before has ended, well or not. Does not raise their errors."""
        self._await(self._outbox.ask(lambda request, at: [SYNC, request, at]), timeout)

    # -- side effects ----------------------------------------------------------------------------------------------

    def chain(self) -> int:
        """A new chain: side effects on different chains are not ordered against each other."""
        with self._outbox.lock:
            id_ = self._outbox.new_id()
            self._outbox.messages.append([CHAIN, id_])
            self._chains.add(id_)
        return id_

    def _link(self, chain: int | None) -> int:
        if chain is not None and (type(chain) is not int or chain not in self._chains):
            raise self._at_user(ProtocolError(f"{chain!r} is no chain of this session; make one with chain()"), 2)
        return self._chain if chain is None else chain

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call back with the tensors' values (host arrays of its own), after the side effects issued before.

        Returns at once. The callback runs on the thread that drives the machine and may neither submit nor wait. If
        it raises, or an operand is poisoned, the effects behind it in the chain do not happen; `check_chain` raises
        the error.
        """
        if not callable(callback):
            raise self._at_user(MetadataError(f"effect: a callback is a function, not {type(callback).__name__}"), 1)
        ids = tuple(self._own(tensor)._id for tensor in tensors)
        link = self._link(chain)
        with self._outbox.lock:
            location = self._outbox.locations.number(user_frame(1))
            self._outbox.messages.append([EFFECT, ids, link, callback, 0, location])
        self._outbox.appended()

    def check_chain(self, chain: int | None = None) -> None:
        """Wait for a chain's side effects; raises the error that stopped it."""
        link = self._link(chain)
        self._await(self._outbox.ask(lambda request, at: [EFFECT, (), link, do_nothing, request, at]))

    def print(self, *values: Tensor | object, sep: str = " ") -> None:
        """Print tensors' values and other things in program order: an `effect` on the default chain.

        Returns at once. After an error in that chain nothing more is printed; `check_chain` says why.
        """
        tensors = [value for value in values if isinstance(value, Tensor)]

        def show(*arrays: NDArray[Any]) -> None:
            rest = iter(arrays)
            texts = [str(next(rest)) if isinstance(value, Tensor) else str(value) for value in values]
            sys.stdout.write(sep.join(texts) + "\n")

        self.effect(show, *tensors)

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, name: str | Mapping[str, Tensor], tensor: Tensor | None = None) -> None:
        """Name a tensor, or a dict of them at once, for every session of the machine. A name keeps its tensor alive."""
        given: Any = {name: tensor} if isinstance(name, str) else name
        if not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
            raise self._at_user(MetadataError("publish: takes a name and a tensor, or a dict of tensors by name"), 1)
        tensors = [self._own(value) for value in given.values()]
        ids = tuple(value._id for value in tensors)
        self._tell(lambda request: [PUBLISH, tuple(given), ids, request])

    def lookup(self, name: str | Sequence[str], *, snapshot: bool = False) -> Any:
        """The tensor of that name, or a dict of those of several names, taken at once.

        With `snapshot`, tensors of their own with the present values: what is written to the named ones later, they do
        not see. Nothing is copied before that.
        """
        names = (name,) if isinstance(name, str) else listed_names(name)
        ids: list[int] = []

        def build(request: int, _location: int) -> list[Any]:
            ids.extend(self._outbox.new_id() for _ in names)
            return [LOOKUP, names, tuple(ids), request, bool(snapshot)]

        reply = self._outbox.ask(build, located=False)
        tensors = {
            key: Tensor(self, id_, None if meta is None else Meta.of(*meta), home)
            for key, id_, (meta, home) in zip(names, ids, self._await(reply), strict=True)
        }
        return tensors[name] if isinstance(name, str) else tensors

    def unpublish(self, *names: str) -> None:
        """Take names away; handles to their tensors stay."""
        self._tell(lambda request: [UNPUBLISH, names, request])

    def names(self) -> list[str]:
        """The names under which something is published, sorted."""
        return list(self._await(self._outbox.ask(lambda request, _: [NAMES, request], located=False)))

    def atomic(self) -> AbstractContextManager[None]:
        """`with session.atomic():` what is issued inside, no other session sees half of.

        The machine takes it as one group: what others issue comes before all of it, or after. It is sent when the block
        ends; so nothing inside can wait for a value or ask for anything (ProtocolError), and `publish` and `unpublish`
        return at once, their errors only logged. Blocks inside of one another are one group. Other threads that use the
        session wait until the block is over. If the block raises, what it has issued until then is sent all the same,
        as a group: there are handles to it. It is about interleaving, not about errors: what fails, fails alone.
        """
        return self._outbox.atomic()

    # -- the session itself ----------------------------------------------------------------------------------------

    @property
    def devices(self) -> list[str]:
        """Names of the machine's devices; the first is the default."""
        return list(self._transport.devices)

    @property
    def handler(self) -> Handler:
        """The chain of handlers that every op passes; see `tensord.handlers`."""
        return self._handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is called with an Invocation; {type(handler).__name__} cannot be called")
        self._handler = handler
        self._native = handler is DEFAULT_HANDLER

    def cancel(self) -> None:
        """Turn everything pending into cancellation errors, and everything issued later until `restart`."""
        transport = self._transport
        with transport.shield:
            with self._counting:
                self._cancels += 1
            transport.cancel()

    def restart(self) -> None:
        """After `cancel`: take instructions again. A cancellation that comes after this one stays."""
        with self._outbox.lock:
            self._outbox.refuse_inside()
            self._outbox.messages.append([RESTART, self._cancels])
        self.flush()

    def stats(self) -> dict[str, Any]:
        """Counters: instructions, memory, transfers per device and kind, errors, what hangs. Waits for no result."""
        found: dict[str, Any] = as_lists(self._query("stats"))
        return found

    def trace(self) -> Any:
        """The trace so far: records of finished and live instructions (`records`), `save(path)`, `graph()`."""
        from .tracing import trace_of

        return trace_of(self._query("trace"))

    def close(self) -> None:
        """End the session: what is pending is cancelled, its tensors are released. Closing twice is fine."""
        if not isinstance(self._transport, ClosedTransport):
            self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if isinstance(self._transport, ClosedTransport) else ", ".join(self._transport.devices)
        return f"<tensord.Session {state}>"

    # -- checks ----------------------------------------------------------------------------------------------------

    def _device(self, name: str | None) -> str:
        devices = self._transport.devices
        if name is None:
            return str(next(iter(devices)))
        if type(name) is not str or name not in devices:
            known = ", ".join(devices)
            raise self._at_user(MetadataError(f"there is no device {name!r}; there are {known}"), 2)
        return name

    def _find(self, name: str) -> OpDef:
        try:
            return find(name)
        except TensordError as error:
            raise self._at_user(error, 2) from None

    def _own(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise self._at_user(MetadataError(f"expected a tensor, got {type(tensor).__name__}; use asarray"), 2)
        if tensor._session is not self:
            raise self._at_user(MetadataError("the tensor belongs to another session; publish it and look it up"), 2)
        if tensor._released:
            raise self._at_user(ProtocolError(f"tensor {-tensor._id} was released"), 2)
        return tensor

    def _operand_meta(self, op: OpDef, value: Any) -> OperandMeta | None:
        if isinstance(value, Tensor):
            return self._own(value)._meta
        if type(value) in SCALARS:
            kind: OperandMeta = type(value)
            return kind
        raise MetadataError(
            f"{op.name}: {type(value).__name__} is no operand; use a tensor (asarray) or a number", op=op.name
        )

    def _at_user(self, error: Any, depth: int) -> Any:
        """The error with the user's line."""
        if error.location is None:
            error.location = describe(user_frame(depth))
        return error


def check_scalars(key: SignatureKey, inputs: Sequence[Any]) -> None:
    """Each int operand has to fit the integer dtypes that it meets."""
    for value in inputs:
        if type(value) is int:
            check_scalar(key.op.name, value, key.metas, dict(key.attributes))


def is_numeric(values: object) -> TypeGuard[NDArray[Any]]:
    """An array whose elements every dtype takes, as NumPy converts them?"""
    return isinstance(values, np.ndarray) and values.dtype.kind in "biufc"


def has_large(inputs: Sequence[Any]) -> bool:
    """Is there an int that some dtype might not hold?"""
    return any(type(value) is int and not 0 <= value <= SMALL for value in inputs)


def as_lists(value: Any) -> Any:
    """A plain value with lists for tuples: what comes over a wire has only one kind of sequence."""
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def do_nothing() -> None:
    """The side effect that only waits for its chain."""


def are_tensors(values: object) -> bool:
    """A list or tuple of handles?"""
    return isinstance(values, list | tuple) and all(type(value) is Tensor for value in values)


def listed(op: OpDef, what: str, values: Any) -> tuple[Any, ...]:
    """A sequence as a tuple; MetadataError if it is none."""
    if isinstance(values, Tensor) or not isinstance(values, Iterable):
        raise MetadataError(f"{op.name}: {what} is a list of tensors, not {type(values).__name__}", op=op.name)
    return tuple(values)


def listed_names(names: Any) -> tuple[str, ...]:
    """Several names; TypeError if they are something else."""
    if not isinstance(names, list | tuple | set | frozenset | dict) or not all(isinstance(n, str) for n in names):
        raise TypeError(f"expected a name or a list of names, got {type(names).__name__}")
    return tuple(names)
