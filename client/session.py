"""A session: one client's connection to a virtual machine. Turns calls into messages; knows nothing of scheduling.

A call infers its results' metas here, so that what is wrong with shapes, dtypes or attributes raises at the user's
line; then it appends one message to the batch. The batch leaves when it is full, before every wait, when a second
heavy op joins it, or when it has lain idle for 10 ms. Handles that were dropped by then ride along.

Threads. `lock` guards the batch and the tables; it is re-entrant, since a signal handler may call into a session on
the very thread that holds it. It is never held while waiting. `Tensor.__del__` runs anywhere, also inside the lock,
so all it does is put the id on a `queue.SimpleQueue`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..interpreter.errors import ConnectionLost, MetadataError, ProtocolError, TensordError
from ..interpreter.infer import InferCache
from ..interpreter.messages import (
    CALL,
    CHAIN,
    EFFECT,
    FETCH,
    LOCATION,
    LOOKUP,
    PUBLISH,
    RELEASE,
    SIGNATURE,
    SYNC,
    TO_DEVICE,
    UNPUBLISH,
    UPLOAD,
    WAIT,
    Message,
    encode_meta,
)
from ..interpreter.meta import Meta, OperandMeta, Scalar
from ..interpreter.opdef import FrozenAttributes, OpDef, find
from ..interpreter.promotion import check_scalar
from ..interpreter.targets import check_targets
from .handlers import DEFAULT_HANDLER, Handler, Invocation
from .locations import Locations, user_frame
from .tensor import Tensor
from .transport import ClosedTransport, Reply, Transport

BATCH = 256
SIGNATURES = 4096  # how many a session knows at a time
SCALARS = (bool, int, float, complex)
PLAIN = frozenset((bool, int, float, str, type(None)))


class Entry(NamedTuple):
    """What a session knows of one signature."""

    number: int
    outputs: tuple[Meta | None, ...]
    output: Meta | None  # the only one's, for ops with one result
    home: str
    heavy: bool
    integers: bool  # an int scalar takes part: each value has to be checked against the dtypes


class Session:
    """A connection to a virtual machine; a context manager. Made by `tensord.connect`."""

    def __init__(self, transport: Transport) -> None:
        self._transport: Any = transport
        self._lock = threading.RLock()
        self._batch: list[Message] = []
        self._entries: dict[Any, Entry] = {}
        self._scalars: dict[int, tuple[bool, ...]] = {}
        self._signatures = 0
        self._keys: dict[int, list[Any]] = {}  # signature number -> keys of its entry
        self._infer = InferCache()
        self._locations = Locations()
        self._sites = self._locations.sites
        self._ids = 0
        self._heavy = False
        self._flushes = 0
        self._seen_flushes = -1
        self._dropped: SimpleQueue[int] = SimpleQueue()
        self._drop = self._dropped.put
        self._handler: Handler = DEFAULT_HANDLER
        self._native = True  # the default handlers: operators may go straight to the batch
        self._pid = os.getpid()
        self._chain = self._new_chain()

    # -- making tensors --------------------------------------------------------------------------------------------

    def asarray(self, values: ArrayLike | Tensor, device: str | None = None, *, dtype: Any = None) -> Tensor:
        """A tensor with a copy of those values, on its home `device` (the first one unless given). Returns at once.

        Takes what `numpy.asarray` takes; the caller's array may change afterwards. MetadataError for dtypes that
        tensord does not have and devices that do not exist.
        """
        home = self._device(device)
        if isinstance(values, Tensor):
            return self._own(values).to_device(home)
        try:
            array = np.array(values, dtype=dtype, order="C", copy=True)
            meta = Meta.of(array.shape, array.dtype)
        except (TypeError, ValueError) as error:
            raise self._at_user(MetadataError(f"asarray: {error}", op="asarray"), 1) from None
        if meta.nbytes > self._transport.inline_work:
            self._make_way()
        with self._lock:
            self._ids = id_ = self._ids + 1
            location = self._locations.number(user_frame(1))
            self._batch.append([UPLOAD, id_, meta.shape, meta.dtype.name, home, array, location])
        self._appended()
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
        if entry is not None:
            return self._issue(entry, inputs, out, self._locations.number(sys._getframe(1)))
        op = self._find(name)
        try:
            frozen = op.freeze(attributes)
        except TensordError as error:
            raise self._at_user(error, 1) from None
        invocation = Invocation(self, op, tuple(inputs), frozen, None if out is None else tuple(out), device)
        try:
            results = self._handler(invocation)
        except MetadataError as error:
            raise self._at_user(error, 1) from None
        if key is not None:
            self._remember(key, invocation)
        return results

    def _call_key(self, name: str, inputs: Any, attributes: Any, out: Any, device: str | None) -> Any:
        """What tells a call from others before anything is checked; None if that is not cheap to say."""
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
        if not attributes:
            return (name, tuple(metas), home, targets)
        kinds = tuple(map(type, attributes.values()))  # 1, 1.0 and True are equal, and not the same attribute
        if not PLAIN.issuperset(kinds):
            return None
        return (name, tuple(metas), home, targets, tuple(attributes.items()), kinds)

    def _remember(self, key: Any, invocation: Invocation) -> None:
        """Let the next call with that key go straight to its signature, if that is all that it takes."""
        device = self.place(invocation)
        if self._native and self.supports(invocation.op, device):
            entry = self._entries.get(self._entry_key(invocation, device))
            if entry is not None and not entry.integers:
                self._alias(key, entry)

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
        key = self._entry_key(invocation, device)
        frame = user_frame(1)
        with self._lock:
            entry = self._entries.get(key) or self._add_entry(key)
            location = self._locations.number(frame)
        if entry.integers:
            check_scalars(invocation.op, invocation.inputs, key[1], dict(invocation.attributes))
        return self._issue(entry, invocation.inputs, invocation.out, location)

    def _entry_key(self, invocation: Invocation, device: str) -> Any:
        op, inputs, frozen, out, _ = invocation[1:]
        metas = tuple([self._operand_meta(op, value) for value in inputs])
        targets = None if out is None else tuple([self._own(target)._meta for target in out])
        return (op, metas, frozen, device, targets)

    def _issue(self, entry: Entry, inputs: Sequence[Any], out: Sequence[Tensor] | None, location: int) -> list[Tensor]:
        """Append one call to the batch."""
        if entry.heavy:
            self._make_way()
        operands = tuple([value._id if type(value) is Tensor else value for value in inputs])
        with self._lock:
            if out is None:
                first = self._ids + 1
                self._ids += len(entry.outputs)
                ids = tuple(range(first, self._ids + 1))
            else:
                ids = tuple([target._id for target in out])
            self._batch.append([CALL, entry.number, operands, ids, 0, location])
        self._appended()
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
        if entry is None or not self._native:
            return self._operate_slowly(op, x, y, in_place, key)
        if entry.heavy:
            self._make_way()
        frame = sys._getframe(2)
        code = frame.f_code
        site = self._sites.get((id(code), frame.f_lasti))
        location = self._locations.number(frame) if site is None else site[0]
        with self._lock:
            if in_place:
                id_ = x._id
            else:
                self._ids = id_ = self._ids + 1
            batch = self._batch
            batch.append([CALL, entry.number, operands, (id_,), 0, location])
            size = len(batch)
        if size >= BATCH:
            self.flush()
        elif size == 1:
            self._transport.rouse(self._idle_flush)
        return x if in_place else Tensor(self, id_, entry.output, entry.home)

    def _operate_slowly(self, op: OpDef, x: Tensor, y: Any, in_place: bool, key: Any) -> Tensor:
        invocation = Invocation(self, op, (x, y), (), (x,) if in_place else None, None)
        try:
            result = self._handler(invocation)[0]
        except MetadataError as error:
            raise self._at_user(error, 3) from None
        self._remember(key, invocation)
        return result

    def _add_entry(self, key: Any) -> Entry:
        """Infer a new combination and give it a number; the caller holds the lock."""
        op, metas, attributes, device, targets = key
        if not any(isinstance(m, Meta) or m is None for m in metas) and op.inputs and not op.attributes:
            raise MetadataError(f"{op.name}: at least one operand has to be a tensor", op=op.name)
        outputs = self._infer.infer(op, metas, attributes)
        if targets is not None:
            outputs = check_targets(op, outputs, targets)
        limit = self._transport.inline_work
        work = op.estimate(metas, outputs, dict(attributes)) if None not in metas else limit + 1
        number = self._new_number()
        wire = None if targets is None else tuple(encode_meta(meta) for meta in targets)
        encoded = tuple(encode_meta(meta) for meta in metas)
        self._batch.append([SIGNATURE, number, op.name, attributes, encoded, device, wire])
        self._scalars[number] = tuple(isinstance(meta, type) for meta in metas)
        heavy = work > limit or op.dynamic
        entry = Entry(number, outputs, outputs[0] if outputs else None, device, heavy, int in metas)
        self._alias(key, entry)
        return entry

    def _new_number(self) -> int:
        """A number for a signature. Numbers are used again, the oldest first, so that no table grows with history."""
        self._signatures += 1
        number = self._signatures % SIGNATURES
        forgotten = self._keys.pop(number, None)
        if forgotten is not None:
            self._send_batch()  # calls in it still mean the old signature
            for key in forgotten:
                self._entries.pop(key, None)
        return number

    def _alias(self, key: Any, entry: Entry) -> None:
        """Find the entry by that key from now on."""
        with self._lock:
            self._entries[key] = entry
            self._keys.setdefault(entry.number, []).append(key)

    def _to_device(self, tensor: Tensor, device: str) -> Tensor:
        home = self._device(device)
        self._own(tensor)
        with self._lock:
            self._ids = id_ = self._ids + 1
            location = self._locations.number(user_frame(1))
            self._batch.append([TO_DEVICE, tensor._id, id_, home, location])
        self._appended()
        return Tensor(self, id_, tensor._meta, home)

    # -- the batch -------------------------------------------------------------------------------------------------

    def _append(self, message: Message) -> None:
        """Add a message to the batch."""
        with self._lock:
            self._batch.append(message)
        self._appended()

    def _appended(self) -> None:
        """Something was added: send a full batch, have a lone message looked after."""
        size = len(self._batch)
        if size >= BATCH:
            self.flush()
        elif size:
            self._transport.rouse(self._idle_flush)

    def _make_way(self) -> None:
        """A heavy op is to join: what is there leaves first, so that it starts while the next ones are prepared.

        The newest heavy op stays until the next one comes, since the handles it uses up are dropped only after the
        call; so their release can ride on it, and its result can take over their memory.
        """
        if self._heavy:
            self.flush()
        self._heavy = True

    def flush(self) -> None:
        """Send what is unsent. Never waits for results, but may wait until the machine takes more."""
        with self._lock:
            transport = self._transport
            sent = self._send_batch()
        if sent:
            transport.await_credit()

    def _send_batch(self) -> bool:
        """Hand over what is unsent, and say whether there was anything; the caller holds the lock."""
        batch = self._take_batch()
        if batch:
            self._transport.send(batch)
        return bool(batch)

    def _take_batch(self) -> list[Message]:
        batch, self._batch = self._batch, []
        self._heavy = False
        self._flushes += 1
        if not self._dropped.empty():
            self._release_dropped(batch)
        if self._locations.unsent:
            sites, self._locations.unsent = self._locations.unsent, []
            batch[:0] = [[LOCATION, number, text] for number, text in sites]
        return batch

    def _release_dropped(self, batch: list[Message]) -> None:
        """Handles dropped before their last use leaves ride on it as a bit; the others get a message of their own."""
        take = self._dropped.get_nowait
        dropped = {take() for _ in range(self._dropped.qsize())}
        for message in reversed(batch):
            if message[0] == CALL:
                if not (dropped.isdisjoint(message[2]) and dropped.isdisjoint(message[3])):
                    ride(message, dropped, self._scalars[message[1]])
                    if not dropped:
                        return
            elif message[0] != SIGNATURE:
                dropped = self._release_after(batch, message, dropped)
        if dropped:
            batch.append([RELEASE, sorted(dropped)])

    def _release_after(self, batch: list[Message], message: Message, dropped: set[int]) -> set[int]:
        """Ids that a message other than a call uses cannot ride on an earlier one."""
        used = {id_ for id_ in dropped if mentions(message, id_)}
        if used:
            batch.append([RELEASE, sorted(used)])
        return dropped - used

    def _idle_flush(self) -> bool:
        """Called now and then by the transport: send what nobody has sent since the last time."""
        if not self._batch and self._dropped.empty():
            return False
        if self._flushes == self._seen_flushes and self._lock.acquire(blocking=False):
            try:
                self._send_batch()
            except ConnectionLost:
                return False
            finally:
                self._lock.release()
        self._seen_flushes = self._flushes
        return True

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _ask(self, build: Callable[[int, int], Message]) -> Reply:
        """Send a message that asks for a reply, behind everything unsent."""
        self._check_process()
        with self._lock:
            number, reply = self._transport.request()
            location = self._locations.number(user_frame(2))
            self._batch.append(build(number, location))
        self.flush()
        answer: Reply = reply
        return answer

    def _await(self, reply: Reply, timeout: float | None = None) -> Any:
        """The reply's value; raises its error, or TimeoutError."""
        if not reply.done and not self._transport.wait(reply, timeout):
            raise TimeoutError(f"no result within {timeout} s")
        return reply.result()

    def _fetch(self, tensor: Tensor) -> NDArray[Any]:
        result: NDArray[Any] = self._await(self._ask(lambda request, at: [FETCH, tensor._id, request, at]))
        return result

    def _ask_ready(self, tensor: Tensor) -> Reply:
        return self._ask(lambda request, at: [WAIT, (tensor._id,), request, at])

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything issued before has ended, well or not. Does not raise their errors."""
        self._await(self._ask(lambda request, at: [SYNC, request, at]), timeout)

    # -- side effects ----------------------------------------------------------------------------------------------

    def _new_chain(self) -> int:
        with self._lock:
            self._ids = id_ = self._ids + 1
            self._batch.append([CHAIN, id_])
        return id_

    def chain(self) -> int:
        """A new chain: side effects on different chains are not ordered against each other."""
        return self._new_chain()

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call back with the tensors' values (read-only host arrays), after the side effects issued before.

        Returns at once. The callback runs on the thread that drives the machine and may neither submit nor wait. If
        it raises, or an operand is poisoned, the effects behind it in the chain do not happen; `check_chain` raises
        the error.
        """
        ids = tuple(self._own(tensor)._id for tensor in tensors)
        with self._lock:
            location = self._locations.number(user_frame(1))
            self._batch.append([EFFECT, ids, self._chain if chain is None else chain, callback, 0, location])
        self._appended()

    def check_chain(self, chain: int | None = None) -> None:
        """Wait for a chain's side effects; raises the error that stopped it."""
        link = self._chain if chain is None else chain
        self._await(self._ask(lambda request, at: [EFFECT, (), link, do_nothing, request, at]))

    def print(self, *values: Tensor | object, sep: str = " ") -> None:
        """Print tensors' values and other things in program order, once they are there."""
        tensors = [value for value in values if isinstance(value, Tensor)]

        def show(*arrays: NDArray[Any]) -> None:
            rest = iter(arrays)
            texts = [str(next(rest)) if isinstance(value, Tensor) else str(value) for value in values]
            sys.stdout.write(sep.join(texts) + "\n")

        self.effect(show, *tensors)

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, name: str | Mapping[str, Tensor], tensor: Tensor | None = None) -> None:
        """Name a tensor, or a dict of them at once, for every session of the machine. A name keeps its tensor alive."""
        given = {name: tensor} if isinstance(name, str) else dict(name)
        tensors = [self._own(value) for value in given.values()]
        ids = tuple(value._id for value in tensors)
        self._await(self._ask(lambda request, _: [PUBLISH, tuple(given), ids, request]))

    def lookup(self, name: str | Sequence[str]) -> Any:
        """The tensor of that name, or a dict of those of several names, taken at once."""
        names = (name,) if isinstance(name, str) else tuple(name)
        with self._lock:
            ids = tuple(range(self._ids + 1, self._ids + 1 + len(names)))
            self._ids += len(names)
            number, reply = self._transport.request()
            self._batch.append([LOOKUP, names, ids, number])
        self.flush()
        tensors = {
            key: Tensor(self, id_, None if meta is None else Meta.of(*meta), home)
            for key, id_, (meta, home) in zip(names, ids, self._await(reply), strict=True)
        }
        return tensors[name] if isinstance(name, str) else tensors

    def unpublish(self, *names: str) -> None:
        """Take names away; handles to their tensors stay."""
        self._await(self._ask(lambda request, _: [UNPUBLISH, names, request]))

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
        self._handler = handler
        self._native = handler is DEFAULT_HANDLER

    def cancel(self) -> None:
        """Turn everything pending into cancellation errors, and everything issued later until `restart`."""
        self._transport.cancel()

    def restart(self) -> None:
        """After `cancel`: take instructions again."""
        self.flush()
        self._transport.restart()

    def stats(self) -> dict[str, Any]:
        """Counters: instructions, memory, transfers per device and kind, errors, what hangs."""
        self.flush()
        found: dict[str, Any] = self._transport.query("stats")
        return found

    def trace(self) -> Any:
        """The trace so far: records of finished and live instructions (`records`), `save(path)`, `graph()`."""
        self.flush()
        return self._transport.query("trace")

    def close(self) -> None:
        """End the session: what is pending is cancelled, its tensors are released. Closing twice is fine."""
        transport = self._transport
        if isinstance(transport, ClosedTransport):
            return
        self._transport = ClosedTransport(transport.devices)
        transport.close()

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
        if name not in devices:
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
        raise MetadataError(f"{op.name}: {type(value).__name__} is no operand; use a tensor (asarray) or a number", op=op.name)

    def _at_user(self, error: Any, depth: int) -> Any:
        """The error with the user's line."""
        from .locations import describe

        if error.location is None:
            error.location = describe(user_frame(depth))
        return error

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConnectionLost("this session belongs to another process; connect again after a fork")


def check_scalars(op: OpDef, inputs: Sequence[Any], metas: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Each int operand has to fit the integer dtypes that it meets."""
    for value in inputs:
        if type(value) is int:
            check_scalar(op.name, value, metas, attributes)


def ride(message: Message, dropped: set[int], scalars: Sequence[bool]) -> None:
    """Mark a call's operands whose handles were dropped; walking backwards, this is their last use."""
    inputs, outputs = message[2], message[3]
    for position, id_ in enumerate(inputs):
        if id_ in dropped and not scalars[position]:
            dropped.discard(id_)
            message[4] |= 1 << position  # type: ignore[index]
    for position, id_ in enumerate(outputs, len(inputs)):
        if id_ in dropped:
            dropped.discard(id_)
            message[4] |= 1 << position  # type: ignore[index]


def mentions(message: Message, id_: int) -> bool:
    """Does a message other than a call name that tensor?"""
    return any(field == id_ if isinstance(field, int) else isinstance(field, tuple) and id_ in field for field in message[1:4])


def do_nothing() -> None:
    """The side effect that only waits for its chain."""
