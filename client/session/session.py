"""A session: one client's connection to a virtual machine. The thin public facade of its parts.

The parts do not know the session, and share nothing but the outbox, which each is given:

- `calls`: issues ops; `uploads`: makes tensors of the user's values
- `answers`: asks for values and waits for them; `names`: shares tensors; `effects`: runs user code in program order,
  and `printing` prints in it
- `cancellation`: cancels and restarts
- `contexts`: releases together what was made together

What waits is in `waiting`, in steps: a thread takes them and sleeps in between, or an event loop does.

Tensors keep the session alive, and go straight to the part that they need. The array API's functions, which are
shorthands for ops, are in `array_api`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, Self, TypeVar, overload

from numpy.typing import ArrayLike, NDArray

from ...interpreter.errors import MetadataTypeError
from ...interpreter.schema.opdef import OpDef
from ...interpreter.types.meta import Scalar
from ...interpreter.wire.addresses import is_local
from ...interpreter.wire.forms import shown
from ..array_api.random import Random, RandomState
from ..calls import calls
from ..calls.checks import device_of, own
from ..calls.contexts import Context, Contexts
from ..calls.handlers import Handler, Invocation
from ..files.loading import loading
from ..files.saving import Checkpointing, Saving, Savings, checkpoint, restoring, saving
from ..host_arrays.host_arrays import HostPool, host_meta, new_host_array
from ..host_arrays.host_results import HostResults
from ..host_arrays.padding import padded
from ..host_arrays.uploads import upload
from ..locations.locations import located
from ..locations.spans import Span
from ..locations.tracebacks import make_public
from ..outbox.cancellation import Cancellation
from ..outbox.current import capture_of, refuse_captured
from ..outbox.outbox import Outbox
from ..requests.answers import Answers
from ..requests.effects import Effects
from ..requests.printing import Printing
from ..routines.control_flow import ControlFlow, Flows
from ..sharing.names import AT_ONCE, Names
from ..tensor.hints import SESSION, add_hints, present
from ..tensor.operators import NAMESPACES
from ..tensor.tensor import Tensor
from ..transport.interface import ClosedTransport, Transport
from ..waiting.steps import Steps, Work, on_thread
from .waiting import (
    AwaitableSession,
    counting,
    fetching,
    listed,
    listing,
    looking_up,
    publishing,
    syncing,
    unpublishing,
)

if TYPE_CHECKING:
    from ...interpreter.programs.program import Program
    from ..array_api.namespace import Namespace
    from ..array_api.nn import Nn
    from ..routines.routine import Routine


Kind = TypeVar("Kind")
P = ParamSpec("P")
R = TypeVar("R")


class Session(AwaitableSession, ControlFlow):
    """A connection to a virtual machine; a context manager. Made by `tensord.connect`."""

    def __init__(
        self,
        transport: Transport,
        frames: int | None = None,
        kind: type[Outbox] = Outbox,
        *,
        address: str = "local",
        sought: str = "",
    ) -> None:
        self._address = address
        # What errors add that may come of it: a daemon was looked for there, and none was found.
        self._hint = f"this machine is in your process; no daemon was found at {sought}" if sought else ""
        self._outbox = outbox = kind(transport, frames)
        self._release = outbox.release  # takes a tensor's id: all that a dying handle does
        self._calls = calls.Calls(outbox)
        self._answers = Answers(outbox)
        self._effects = Effects(outbox)
        self._printing = Printing(outbox, self._effects)
        self._savings = Savings(outbox)
        self._names = Names(outbox)
        self._cancellation = Cancellation(outbox)
        self._contexts = Contexts(outbox)
        self._opened, self._innermost = self._contexts.opened, self._contexts.innermost  # for each new handle
        self._random_state = RandomState()
        self._flows = Flows()
        self._namespace: Callable[[], Namespace | None] = no_namespace  # a weak reference: the namespace refers to us
        weakref.finalize(self, transport.abandon).atexit = False

    # -- the functions ---------------------------------------------------------------------------------------------

    call = calls.call  # itself: a method that forwards the call would cost every op one more call

    @property
    def xp(self) -> Namespace:
        """The namespace of the Python array API standard, 2025.12: `xp = session.xp; xp.sum(xp.ones((2, 3)), axis=0)`.

        Its functions take and make tensors of this session; creation functions put them on the first device unless
        told otherwise.
        """
        return self._namespace() or self._make_namespace()

    def _make_namespace(self) -> Namespace:
        from ..array_api.namespace import Namespace

        with self._outbox.lock:
            namespace = self._namespace()  # another thread may have been here
            if namespace is None:
                namespace = Namespace(self)
                self._namespace = weakref.ref(namespace)
        return namespace

    @property
    def nn(self) -> Nn:
        """Neural network functions and their gradients; the standard has none of them."""
        from ..array_api.nn import Nn

        return Nn(self)

    @property
    def random(self) -> Random:
        """Random tensors, which depend only on the seed (`session.random.seed(1)`) and the number of the call."""
        return Random(self, self._random_state)

    # -- making tensors --------------------------------------------------------------------------------------------

    def asarray(
        self,
        values: ArrayLike | Tensor,
        device: str | None = None,
        *,
        dtype: Any = None,
        padded_to: Sequence[int] | None = None,
        fill: Scalar = 0,
    ) -> Tensor:
        """A tensor with a copy of those values, on its home `device` (the first one unless given). Returns at once.

        Takes what `numpy.asarray` takes; the caller's array may change afterwards. What lies in an `empty_host` array
        is not copied, and cannot be written until it was read. With `padded_to`, a shape, the values are the beginning
        of a tensor of that shape along each axis, and the rest, which is `fill`, is made on the device. MetadataError
        for dtypes that tensord does not have, devices that do not exist, values that are no part of `padded_to`, and a
        `fill` that the dtype does not hold.
        """
        if padded_to is not None:
            return padded(self, self.asarray(values, device, dtype=dtype), padded_to, fill)
        home = device_of(self, device)
        if isinstance(values, Tensor):
            moved = own(self, values).to_device(home)
            return moved if dtype is None else moved.astype(dtype)
        capture = capture_of(self._outbox)
        if capture is not None:
            return capture.constant(values, home, dtype)
        return upload(self, values, home, dtype)

    def empty_host(self, shape: int | Sequence[int], dtype: Any = None) -> NDArray[Any]:
        """A NumPy array to be filled, contents undefined: `asarray` of it, or of a packed view, copies nothing.

        float64 by default. `asarray` hands it over: it cannot be written until the machine has read it; on a cpu
        device, until the tensor is gone. Copied are arrays below 64 KiB, integers and bools (once, by the machine), and
        everything over tcp. MetadataError for shapes and dtypes that tensord does not have. See docs/host_arrays.md.
        """
        return new_host_array(self, host_meta("empty_host", shape, dtype))

    def pool(self, shape: int | Sequence[int], dtype: Any = None, count: int = 0, *, grow: bool = True) -> HostPool:
        """A pool of `empty_host` arrays: `count` at first, and with `grow` as many more as `get` has to make."""
        return HostPool(self, host_meta("pool", shape, dtype), count, grow=grow)

    def host_results(self) -> HostResults:
        """`with session.host_results():` results of the ops inside come near the host while later ones are computed.

        A fetch finds them there. They stay on their devices, too. Temporaries do not move, as far as they are gone by
        then, nor do `results.leave(x)` (with `as results`), in-place results, and those whose size data decide. The
        block is about all ops of the session meanwhile. MetadataError without a cpu device.
        """
        return HostResults(self)

    def load(
        self,
        path: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        device: str | None = None,
        *,
        own: bool = False,
        raw: bool = False,
        digest: bool = False,
    ) -> dict[str, Tensor]:
        """The tensors of a safetensors, .npz or .npy file, by name, at home on `device`. Returns before they are read.

        A tensor is read when an op first needs it, straight to where it is needed, and again whenever its memory was
        needed for others. So the file has to stay as it is, or be replaced as a whole: of a file that was written to
        meanwhile, the tensors fail with FileError. With `own`, a tensor is read once, and the file matters no more.

        `names`: of those that are wanted, all without. `raw`: dtypes that tensord has not become unsigned integers of
        the same size; without it, such a tensor fails when it is used. `digest`: what is read again has to have the
        same SHA-256, which notices every change. A file that cannot be opened or is damaged is a FileError or
        MetadataError here. docs/files.md says more. Source: Glow's deferred weights.
        """
        wanted = listed(names)
        steps = loading(self, path, wanted, device, own=bool(own), raw=bool(raw), digest=bool(digest))
        return on_thread(self._outbox, steps)

    def save(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Saving:
        """Save the present values of tensors as a safetensors file. Returns at once, like an op.

        The file is written beside its place, flushed to the disk and renamed, so it is there whole or not at all.
        `saving.wait()` waits for that, and raises what has gone wrong: the error of a tensor, a full disk. `close`
        waits for it, too, and logs failures that nobody has waited for, as the next `save` does. `metadata`: texts by
        name, for the header.
        MetadataError here for a dtype that the format has not (complex128), FileError for a folder that is not there.
        A tensor whose shape depends on data is waited for.
        """
        return on_thread(self._outbox, saving(self, self._savings, path, tensors, metadata))

    def checkpoint(
        self, directory: str | os.PathLike[str], names: str | Sequence[str] | None = None, *, keep: int = 2
    ) -> Checkpointing:
        """Write what is published, or these names of it, to a directory of checkpoints. Returns at once, like an op.

        All values are those at this place in program order, whatever is written meanwhile; sessions go on. What has not
        changed since the last checkpoint in that directory is neither read nor written. `checkpoint.wait()` waits until
        all is on the disk, and returns what was written: `generation`, `names`, bytes `written` and `kept`, and
        `failed`, by name, which keep their last values: those with errors, and in the machine's directory of durable
        names those that are not there yet. The last `keep` generations stay, 0 for all; `note` says why older ones are
        still there, if they could not be removed.
        Errors: FileError for a directory that cannot be written; ProtocolError over tcp, for other users' daemons, and
        while another checkpoint is written there.
        """
        given = (names,) if isinstance(names, str) else names
        return checkpoint(self, self._savings, directory, given, keep)

    def restore(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> dict[str, Any]:
        """Publish what a checkpoint holds, or these names of it. Values are read when they are first needed.

        Returns a dict: `generation`, `names` (how many were published), `failed` (why a name was not, by name), `moved`
        (names whose device is missing here, which come to the first one), `notes` (what is wrong with newer
        generations). `generation`: an older one. `deep`: read all values first, and compare their checksums. FileError
        or MetadataError if nothing can be restored.
        """
        given = (names,) if isinstance(names, str) else names
        return on_thread(self._outbox, restoring(self, directory, given, generation, deep=bool(deep)))

    def context(self) -> Context:
        """`with session.context() as c:` what is made inside goes when the block ends, except what `c.keep` was given.

        A context is open in the thread, or the asyncio task, that opened it; contexts may be nested. It has names of
        its own: `c["w"] = x`. Writes in place to tensors from outside stay, and so do published names.
        """
        return Context(self._contexts)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send all unsent messages. Never waits for results, but may wait until the machine takes more."""
        self._outbox.flush()

    def fetch(self, tensors: Iterable[Tensor]) -> list[NDArray[Any]]:
        """The values of several tensors as NumPy arrays (see `Tensor.numpy`), in one round trip instead of one each.

        Waits for all of them; raises the error of the first that has one, with the line of the call that failed.
        """
        return on_thread(self._outbox, fetching(self, listed(tensors)))

    def _query(self, what: str, *arguments: Any) -> Any:
        """The machine's answer to a question about itself, for the command line, `stats` and `trace`."""
        return self._answers.query(what, *arguments)

    def sync(self, timeout: float | None = None, *, durable: bool = False) -> int:
        """Wait until everything issued before has ended. Does not raise the errors of failed instructions. TimeoutError
        after `timeout` seconds.

        Returns how many instructions of the session have failed since the last `sync`; cancelled ones do not count.
        `stats()["recent_errors"]` has the newest errors. `durable`: wait, too, until all durable names of the machine
        are on the disk, with the values that they have now; FileError for those that are not, since their values are
        not there yet or have failed.
        """
        return on_thread(self._outbox, syncing(self, timeout, durable=bool(durable)))

    # -- routines --------------------------------------------------------------------------------------------------

    def link(
        self,
        programs: Program | Sequence[Program],
        *,
        devices: Mapping[str, str] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        name: str = "",
        callbacks: Sequence[Callable[..., None]] = (),
        passes: str | Iterable[str] = "all",
    ) -> Any:
        """Make a function of a program: `f = s.link(program, devices={"d0": "sim:0"}, tensors={"w": w}); (y,) = f(x)`.

        `devices`: for the program's device slots, by default the session's devices in their order. `tensors`: what the
        program captures, by name; what is missing is looked up in the contexts around; `name`: what records show.
        `callbacks`: the functions that its effects call, in the order of their numbers. `passes`: the names of those
        that may change the program, or "all" or "none" (docs/routines.md). Of several programs, a list of functions.
        MetadataError for what does not fit.
        """
        from ..linking.linking import link

        return link(self, programs, devices, tensors, name, callbacks, passes)

    @overload
    def routine(
        self,
        function: Callable[P, R],
        *,
        eager: bool = False,
        passes: str | Iterable[str] = "all",
        constants: Iterable[str] = (),
    ) -> Routine[P, R]: ...
    @overload
    def routine(
        self,
        function: None = None,
        *,
        eager: bool = False,
        passes: str | Iterable[str] = "all",
        constants: Iterable[str] = (),
    ) -> Callable[[Callable[P, R]], Routine[P, R]]: ...
    def routine(
        self,
        function: Callable[P, R] | None = None,
        *,
        eager: bool = False,
        passes: str | Iterable[str] = "all",
        constants: Iterable[str] = (),
    ) -> Any:
        """Make a routine of a function: captured at its first call, and run as one program afterwards.

        A decorator, too: `@session.routine`. With `eager=True` each call just calls the function. `passes`: the names
        of those that may change the program, or "all" or "none". `constants`: what is to stay as it was at the capture,
        by the names that CaptureError and the report give it. MetadataTypeError for generators and coroutines. See
        docs/routines.md.
        """
        from ..routines.routine import Routine

        made = partial(Routine, self, eager=eager, passes=passes, constants=constants)
        return made if function is None else made(function)

    # -- side effects ----------------------------------------------------------------------------------------------

    def chain(self) -> int:
        """A new chain: side effects on different chains are not ordered against each other."""
        return self._effects.new_chain()

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call back with the tensors' values (host arrays of its own), after the side effects issued before.

        Returns at once. The callback runs on the thread that drives the machine and may neither submit nor wait. If
        it raises, or an operand is poisoned, the effects behind it in the chain do not happen; `check_chain` raises
        the error.
        """
        owned = [own(self, tensor) for tensor in tensors]
        capture = capture_of(self._outbox)
        if capture is not None:
            capture.effect(callback, owned, chain)
        else:
            self._effects.issue(callback, tuple(tensor._id for tensor in owned), chain)

    def check_chain(self, chain: int | None = None) -> None:
        """Wait for a chain's side effects; raises the error that stopped it."""
        on_thread(self._outbox, self._effects.checking(chain))

    def print(self, *values: Tensor | object, sep: str = " ", chain: int | None = None) -> None:
        """Print tensors' values and other things in program order: an `effect` on a chain.

        Returns at once. A tensor that has failed is printed as its error. `close` waits for open prints, and so does
        the end of the program, for some seconds at most. After an error of another effect in the chain nothing more is
        printed; `check_chain` says why.
        """
        owned = [own(self, value) for value in values if isinstance(value, Tensor)]
        parts = [None if isinstance(value, Tensor) else str(value) for value in values]
        capture = capture_of(self._outbox)
        if capture is not None:
            capture.print(parts, owned, sep, chain)
        else:
            self._printing.issue(parts, tuple(tensor._id for tensor in owned), sep, chain, self)

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, name: str | Mapping[str, Any], value: Any = None, *, durable: bool = False) -> None:
        """Name a tensor or a routine, or a dict of them at once, for every session of the machine.

        A name keeps its tensor alive, and the tensors that its routine captures. A routine is `routine.link(...)`, what
        `session.link` gives, or a routine that was captured once. MetadataError for one that calls back (`effect`).

        `durable`: the name survives the machine (docs/checkpoints.md), until it is unpublished. Then this waits until
        the value, or what the routine captures, is there and on the disk, and raises its error; inside `atomic` the
        next `sync(durable=True)` does.
        Later writes in place are on the disk by the next `sync(durable=True)`, or at the machine's interval.
        ProtocolError if the machine keeps no durable names.
        """
        on_thread(self._outbox, publishing(self, name, value, durable=bool(durable)))

    def lookup(self, name: str | Sequence[str], *, snapshot: bool = False, wait: float | None = AT_ONCE) -> Any:
        """The tensor or routine of that name, or a dict of what several names stand for, taken at once.

        With `snapshot`, new tensors with the present values, also of those that routines capture: later writes to the
        named tensors do not change them. Nothing is copied before such a write. MetadataKeyError if nothing is
        published under a name, and nobody does that within `wait` seconds (None: no limit). TimeoutError if the machine
        itself has not answered by then, for which it has two seconds at the least; without `wait` it has no limit.
        """
        return on_thread(self._outbox, looking_up(self, name, snapshot=bool(snapshot), wait=wait))

    def unpublish(self, *names: str) -> None:
        """Remove names; handles to their tensors stay."""
        on_thread(self._outbox, unpublishing(self, names))

    def names(self, kind: Literal["", "tensor", "routine"] = "") -> list[str]:
        """The names under which something is published, sorted; with a kind only those of tensors, or of routines."""
        return on_thread(self._outbox, listing(self, kind))

    def atomic(self) -> AbstractContextManager[None]:
        """`with session.atomic():` no other session sees only a part of the ops issued inside.

        The machine takes the ops as one group: ops of other sessions come before all of it, or after. The group is sent
        when the block ends; so nothing inside can wait for a value or ask for anything (ProtocolError), and `publish`
        and `unpublish` return at once, their errors only logged. Nested blocks are one group. Other threads that use
        the session wait until the block is over. If the block raises, the ops issued until then are sent all the same,
        as a group: there are handles to their results. A group is about interleaving, not errors: ops fail one by one.
        """
        return self._outbox.atomic()

    # -- the trace -------------------------------------------------------------------------------------------------

    def span(self, name: str) -> AbstractContextManager[None]:
        """`with session.span("step 37"):` what is issued inside has that name in the trace; spans may be nested.

        A span is open in the thread, or the asyncio task, that opened it. A span costs some microseconds, and the
        instructions inside cost what they cost outside.
        """
        if not isinstance(name, str) or not name:
            raise located(MetadataTypeError(f"span: expected a name, a string, got {shown(name)}"))
        return Span(self._outbox.locations.spans, name)

    def trace(self) -> Any:
        """The trace so far: records of finished and live instructions (`records`), `save(path)`, `graph()`."""
        return on_thread(self._outbox, self._tracing())

    def _tracing(self) -> Steps[Any]:
        from ..embedded.traces import trace_of

        entries = yield self._answers.ask("trace")
        return (yield Work(partial(trace_of, entries), stops=True))

    # -- the session itself ----------------------------------------------------------------------------------------

    @property
    def _transport(self) -> Any:
        return self._outbox.transport

    @property
    def address(self) -> str:
        """The machine's address: "ipc:///path" or "tcp://host:port" is a daemon's, "local" or "local:NAME" is in this
        process."""
        return self._address

    @property
    def devices(self) -> list[str]:
        """Names of the machine's devices; the first is the default."""
        return list(self._transport.devices)

    @property
    def handler(self) -> Handler:
        """The chain of handlers that every op passes; see `tensord.handlers`."""
        return self._calls.handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        self._calls.handler = handler

    def supports(self, op: OpDef, device: str) -> bool:
        """Does the device have a kernel for the op? For handlers."""
        return self._calls.supports(checked(op, OpDef), device_of(self, device))

    def place(self, invocation: Invocation) -> str:
        """The device that an invocation is to run on. For handlers."""
        return self._calls.place(checked(invocation, Invocation))

    def execute(self, invocation: Invocation) -> list[Tensor]:
        """Send an op as it is to its device: what the innermost handler does."""
        return self._calls.execute(checked(invocation, Invocation))

    def cancel(self) -> None:
        """Turn everything pending into cancellation errors, and everything issued later until `restart`."""
        self._cancellation.cancel()

    def restart(self) -> None:
        """After `cancel`: take instructions again. A cancellation that comes after this call stays."""
        self._cancellation.restart()

    def stats(self, by: str | None = None) -> dict[str, Any]:
        """Counters: instructions, memory, transfers per device and kind, errors, hung kernels. Waits for no result.

        `contexts` has what each open context of this session holds, the oldest first; with `routines="auto"`, `periods`
        has what was recognised and sent as runs. With `by` ("session", "name", "device" or "location"), `memory` says
        who holds every byte of the devices' memory, in `rows` that sum up to `total`, and `session` what would be
        `freed` if this session ended; for that, all tensors of the machine are looked at.
        """
        return on_thread(self._outbox, counting(self, by))

    @property
    def closed(self) -> bool:
        """Has the session been closed, or its machine been lost?"""
        return bool(self._transport.lost)

    def close(self) -> None:
        """End the session: what is pending is cancelled, its tensors are released. Closing twice is fine.

        Open prints are written before that, if they are ready within some seconds.
        """
        refuse_captured(self._outbox, "the session cannot be closed")
        if not isinstance(self._transport, ClosedTransport):
            self._printing.finish()
            self._savings.finish()
            self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __dir__(self) -> list[str]:
        """Its attributes, but not those that only say what to write instead."""
        return present(Session, super().__dir__())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled: connect again there, and share tensors by name (publish)")

    def __repr__(self) -> str:
        state = "closed" if self.closed else ", ".join(self._transport.devices)
        where = ", in this process" if is_local(self._address) else ""
        return f"<tensord.Session at {self._address}{where}: {state}>"


def main_namespace() -> type:
    """The class with the functions of `session.xp`; imported late, since few programs use it."""
    from ..array_api.namespace import Main

    return Main


NAMESPACES.append(main_namespace)
add_hints(Session, "a session", SESSION)
make_public(Session)


def checked(given: Any, kind: type[Kind]) -> Kind:
    """What a handler has given, if it is of that kind; MetadataTypeError if not."""
    if not isinstance(given, kind):
        raise located(MetadataTypeError(f"expected an {kind.__name__}, got {type(given).__name__}"))
    return given


def no_namespace() -> None:
    """The weak reference to a namespace that is not there."""
