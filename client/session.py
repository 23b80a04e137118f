"""A session: one client's connection to a virtual machine. Knows nothing of scheduling.

What issues ops is in `calls`; the array API's functions, which are short for ops, in `array_api`.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..interpreter.errors import MetadataError, MetadataTypeError, ProtocolError, metadata_error
from ..interpreter.types.meta import Meta
from ..interpreter.wire.forms import shown
from ..interpreter.wire.frames import name_of
from ..interpreter.wire.messages import (
    CHAIN,
    EFFECT,
    FETCH,
    LOOKUP,
    NAMES,
    PUBLISH,
    QUERY,
    RESTART,
    SYNC,
    UNPUBLISH,
    UPLOAD,
    WAIT,
)
from ..interpreter.wire.segments import SHARED_FROM
from .calls import Calls
from .handlers import DEFAULT_HANDLER, Handler
from .locations import located, user_frame
from .operators import SCALARS
from .outbox.outbox import Outbox
from .random import Random, RandomState
from .reading import share
from .tensor import Tensor
from .transport.interface import ClosedTransport, Reply, Transport

if TYPE_CHECKING:
    from .array_api.namespace import Namespace
    from .nn import Nn


class Session(Calls):
    """A connection to a virtual machine; a context manager. Made by `tensord.connect`."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(Outbox(transport))
        finalizer = weakref.finalize(self, transport.abandon)
        finalizer.atexit = False
        self._chains: set[int] = set()
        self._cancels = 0
        self._era = 0  # how often it was cancelled or restarted
        self._counting = threading.RLock()  # a signal handler may cancel, too
        self._chain = self.chain()
        self._random_state = RandomState()
        self._namespace: Callable[[], Namespace | None] = nothing  # refers weakly: the namespace refers to us

    # -- the functions ---------------------------------------------------------------------------------------------

    @property
    def xp(self) -> Namespace:
        """The namespace of the Python array API standard, 2024.12: `xp = session.xp; xp.sum(xp.ones((2, 3)), axis=0)`.

        Its functions take and make tensors of this session; creation functions put them on the first device unless
        told otherwise.
        """
        return self._namespace() or self._make_namespace()

    def _make_namespace(self) -> Namespace:
        from .array_api.namespace import Namespace

        with self._outbox.lock:
            namespace = self._namespace()  # another thread may have been here
            if namespace is None:
                namespace = Namespace(self)
                self._namespace = weakref.ref(namespace)
        return namespace

    @property
    def nn(self) -> Nn:
        """Neural network functions and their gradients; the standard has none of them."""
        from .nn import Nn

        return Nn(self)

    @property
    def random(self) -> Random:
        """Random tensors, which depend on the seed (`session.random.seed(1)`) and the call, on nothing else."""
        return Random(self, self._random_state)

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
            source = values if isinstance(values, np.ndarray) else numbers_of(values, dtype)
            meta = Meta.of(source.shape, source.dtype.newbyteorder("=") if dtype is None else np.dtype(dtype))
            check_castable(source.dtype, meta.dtype)
            array = self._transport.new_array(meta)
            array[...] = source
        except (TypeError, ValueError, OverflowError) as error:
            raise self._at_user(metadata_error(error, f"asarray: {error}", "asarray"), 1) from None
        outbox = self._outbox
        if meta.nbytes > outbox.transport.inline_work:
            outbox.make_way()
        with outbox.lock:
            id_, location = outbox.new_id(), outbox.locations.number(user_frame(1))
            outbox.messages.append([UPLOAD, id_, meta.shape, name_of(meta.dtype), home, array, location])
        outbox.appended()
        return Tensor(self, id_, meta, home)

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
            raise self._at_user(ProtocolError(f"{shown(chain)} is no chain of this session; make one with chain()"), 2)
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
        self._await(self._outbox.ask(lambda request, at: [EFFECT, (), link, nothing, request, at]))

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
        names = listed_names(tuple(given))
        tensors = [self._own(value) for value in given.values()]
        ids = tuple(value._id for value in tensors)
        for value in tensors:
            share(value)
        self._tell(lambda request: [PUBLISH, names, ids, request])

    def lookup(self, name: str | Sequence[str], *, snapshot: bool = False) -> Any:
        """The tensor of that name, or a dict of those of several names, taken at once.

        With `snapshot`, tensors of their own with the present values: what is written to the named ones later, they do
        not see. Nothing is copied before that.
        """
        given = (name,) if isinstance(name, str) else name
        names = listed_names(given)
        ids: list[int] = []

        def build(request: int, _location: int) -> list[Any]:
            ids.extend(self._outbox.new_id() for _ in names)
            return [LOOKUP, names, tuple(ids), request, bool(snapshot)]

        reply = self._outbox.ask(build, located=False)
        tensors = {
            key: Tensor(self, id_, None if meta is None else Meta.of(*meta), home)
            for key, id_, (meta, home) in zip(given, ids, self._await(reply), strict=True)
        }
        for tensor in tensors.values():
            share(tensor)
        return tensors[name] if isinstance(name, str) else tensors

    def unpublish(self, *names: str) -> None:
        """Take names away; handles to their tensors stay."""
        plain = listed_names(names)
        self._tell(lambda request: [UNPUBLISH, plain, request])

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
                self._era += 1
            transport.cancel()

    def restart(self) -> None:
        """After `cancel`: take instructions again. A cancellation that comes after this one stays."""
        with self._outbox.lock:
            self._outbox.refuse_inside()
            self._outbox.messages.append([RESTART, self._cancels])
            with self._counting:
                self._era += 1
        self.flush()

    def stats(self) -> dict[str, Any]:
        """Counters: instructions, memory, transfers per device and kind, errors, what hangs. Waits for no result."""
        found: dict[str, Any] = as_lists(self._query("stats"))
        return found

    def trace(self) -> Any:
        """The trace so far: records of finished and live instructions (`records`), `save(path)`, `graph()`."""
        from .embedded.traces import trace_of

        return trace_of(self._query("trace"))

    @property
    def closed(self) -> bool:
        """Has it been closed, here or by losing the machine?"""
        return bool(self._transport.lost)

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
        state = "closed" if self.closed else ", ".join(self._transport.devices)
        return f"<tensord.Session {state}>"


def numbers_of(values: Any, dtype: Any) -> NDArray[Any]:
    """What is no array yet, as one; TypeError for what holds no numbers, also where NumPy would make some of it."""
    if dtype is not None and type(values) not in SCALARS:
        found = np.asarray(values)
        mixed = found.dtype.kind == "O"  # large ints, fractions; or None, which NumPy takes for NaN
        if found.dtype.kind not in "biufc" and not (mixed and all(map(is_number, found.flat))):
            raise TypeError(f"dtype {found.dtype} is not supported")
    return np.asarray(values, dtype=dtype)


def is_number(value: Any) -> bool:
    """Does it say that it can be one?"""
    return any(hasattr(value, name) for name in ("__float__", "__complex__", "__index__"))


def check_castable(given: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    """TypeError where a conversion would drop the imaginary parts without a word, or where elements are no numbers."""
    if given.kind not in "biufc":
        raise TypeError(f"dtype {given} is not supported")
    if given.kind == "c" and wanted.kind not in "cb":
        raise TypeError(f"{given.name} cannot become {wanted.name}: take the real part first")


def nothing() -> None:
    """The side effect that only waits for its chain; the reference to what is not there."""


def as_lists(value: Any) -> Any:
    """A plain value with lists for tuples: what comes over a wire has only one kind of sequence."""
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def listed_names(names: Any) -> tuple[str, ...]:
    """Several names, as the plain strings that messages carry; MetadataTypeError if they are something else."""
    if not isinstance(names, list | tuple | set | frozenset | dict):
        raise located(MetadataTypeError(f"expected a name or a list of names, got {type(names).__name__}"))
    for name in names:
        if not isinstance(name, str):
            raise located(MetadataTypeError(f"a name is a string, not {type(name).__name__}"))
    return tuple(map(str.__str__, names))
