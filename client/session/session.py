"""A session: one client's connection to a virtual machine. The thin public facade of its parts.

The parts (`parts`, `core/core`) do not know the session; each is given the outbox. Methods are here, and in the classes
that the session inherits, by subject. Methods that wait consist of steps: a thread takes them and sleeps in between, or
an event loop does.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, TypeVar

from ...interpreter.errors import MetadataTypeError
from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.opdef import OpDef
from ...interpreter.types.meta import Scalar
from ..array_api.random import Random
from ..calls.by_name import call
from ..calls.checks import Device, device_of
from ..calls.contexts import Context
from ..calls.op_invocation import OpInvocation
from ..global_tensors.checks import checked as checked_placement
from ..locations.locations import located
from ..locations.tracebacks import hides, make_public, signed
from ..outbox.current import refuse_captured
from ..outbox.outbox import Outbox
from ..routines.control_flow import ControlFlow
from ..tensor.hints import SESSION, add_hints, present
from ..tensor.numpy_functions import NAMESPACES
from ..tensor.tensor import Tensor
from ..transport.interface import ClosedTransport, Transport
from ..waiting.helper import in_helper
from .files import Files
from .handlers import Handler, Invocation
from .names import SharedNames
from .order import Order, SideEffects
from .parts import Parts
from .programs import Programs
from .reports import Reports
from .values import Values

if TYPE_CHECKING:
    from ..array_api.namespace import Namespace
    from ..array_api.nn import Nn

Kind = TypeVar("Kind")


class Session(Values, Files, SharedNames, Programs, SideEffects, Order, Reports, ControlFlow):
    """A connection to a virtual machine; a context manager. Made by `tensord.connect`."""

    def __init__(
        self,
        transport: Transport,
        frames: int | None = None,
        kind: type[Outbox] = Outbox,
        *,
        address: str = "local",
        sought: str = "",
        strict: bool = False,
    ) -> None:
        hint = f"this machine is in your process; no daemon was found at {sought}" if sought else ""
        self._begin(Parts(kind(transport, frames), address, hint))
        self._core.strict = strict

    def _begin(self, core: Parts) -> None:
        """Become the facade of a core."""
        self._core = core
        core.session, core.facade = weakref.ref(self), facade
        vars(self)["call"] = MethodType(call, core)  # the function itself: the method below would cost one more call

    # -- ops, and creation of tensors --------------------------------------------------------------------------------

    @hides
    @signed
    def call(
        self,
        name: str,
        inputs: Sequence[Tensor | Scalar] = (),
        attributes: Mapping[str, Any] | None = None,
        *more: Never,
        out: Sequence[Tensor] | None = None,
        device: Device | None = None,
    ) -> list[Tensor]:
        """Issue one op by name. Returns at once, with handles of the results.

        The op runs on `device`, else on the home of `out`, else on the home of its first tensor operand, else on the
        first device.

        :param name: The name of the op (docs/ops.md).
        :param inputs: Tensors, and numbers where the op takes them.
        :param attributes: The attributes of the op by name.
        :param out: Tensors to which the results are written, in place.
        :param device: The device to run on.
        :returns: The results.
        :raises MetadataError: At this line, for wrong shapes, dtypes, attributes, devices and names.
        """
        return call(self._core, name, inputs, attributes, *more, out=out, device=device)

    @property
    def xp(self) -> Namespace:
        """The namespace of the Python array API standard, 2025.12: `xp = session.xp; xp.sum(xp.ones((2, 3)), axis=0)`.

        Its functions take and make tensors of this session; creation functions put them on the first device by default.
        """
        return self._core.namespace() or namespace_of(self._core)

    @property
    def nn(self) -> Nn:
        """Neural network functions and their gradients, which the standard lacks."""
        from ..array_api.nn import Nn

        return Nn(self._core)

    @property
    def random(self) -> Random:
        """Random tensors, which depend only on the seed (`session.random.seed(1)`) and the number of the call."""
        return Random(self._core)

    def context(self) -> Context:
        """`with session.context() as c:` tensors that are made inside are released when the block ends.

        Tensors passed to `c.keep` stay. A context is open in the thread, or the asyncio task, that opened it; contexts
        may be nested. It has names of its own: ``c["w"] = x``. Writes in place to tensors from outside stay, and so do
        published names.

        :returns: The context.
        """
        return Context(self._core.scopes)

    @property
    def address(self) -> str:
        """The machine's address: "ipc:///path" or "tcp://host:port" is a daemon's, "local" or "local:NAME" is in this
        process."""
        return self._core.address

    @property
    def devices(self) -> list[str]:
        """Names of the machine's devices; the first is the default."""
        return self._core.devices

    @property
    def placement(self) -> Placement | None:
        """The placement of new tensors without a device, which are then global tensors in equal parts; None at first.

        `session.placement = td.placement(["sim:0", "sim:1"])`; MetadataError for devices that do not exist.
        """
        return self._core.placement

    @placement.setter
    def placement(self, placement: Placement | None) -> None:
        refuse_captured(self._core.outbox, "the session's placement cannot be set")
        self._core.placement = None if placement is None else checked_placement(self._core, placement)

    @property
    def handler(self) -> Handler:
        """The chain of handlers that every op passes; see `tensord.handlers`."""
        return self._core.handler

    @handler.setter
    def handler(self, handler: Handler) -> None:
        self._core.use(handler)

    def supports(self, op: OpDef, device: str) -> bool:
        """Say whether a device has a kernel for an op. For handlers.

        :param op: The definition of the op.
        :param device: The name of the device.
        :returns: Whether there is a kernel.
        :raises MetadataError: The device does not exist.
        """
        return self._core.calls.supports(checked(op, OpDef), device_of(self._core, device))

    def place(self, invocation: Invocation) -> str:
        """Choose the device on which an invocation will run. For handlers.

        :param invocation: The invocation.
        :returns: The name of the device.
        """
        return self._core.calls.place(self._core, of_op(invocation))

    def execute(self, invocation: Invocation) -> list[Tensor]:
        """Send an op as it is to its device, as the innermost handler does.

        :param invocation: The invocation, with its device.
        :returns: The results of the op.
        """
        return self._core.calls.execute(self._core, of_op(invocation))

    @property
    def closed(self) -> bool:
        """Whether the session was closed, or has lost its machine."""
        return self._core.closed

    def close(self) -> None:
        """End the session: pending work is cancelled, and its tensors are released. Closing twice is fine.

        Open prints are written first, if they are ready within some seconds.
        """
        refuse_captured(self._core.outbox, "the session cannot be closed")
        if not isinstance(self._core.transport, ClosedTransport):
            self._core.printing.finish()
            self._core.writes.finish()
            self._core.outbox.close()

    async def close_async(self) -> None:
        """`await session.close_async()`: see `close`. A task that is cancelled meanwhile does not stop the closing."""
        refuse_captured(self._core.outbox, "the session cannot be closed")
        await in_helper(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close_async()

    def __dir__(self) -> list[str]:
        """The attributes, without names that only hint at others."""
        return present(Session, super().__dir__())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled: connect again there, and share tensors by name (publish)")

    def __repr__(self) -> str:
        return repr(self._core)


def facade(core: Parts) -> Session:
    """A new facade of a core whose former facade the program has dropped."""
    session = object.__new__(Session)
    session._begin(core)
    return session


def namespace_of(core: Parts) -> Namespace:
    """The namespace of a session; it is made unless another thread has made it."""
    from ..array_api.namespace import Namespace

    with core.outbox.lock:
        namespace = core.namespace()
        if namespace is None:
            namespace = Namespace(core)
            core.namespace = weakref.ref(namespace)
    return namespace


def main_namespace() -> type:
    """The class with the functions of `session.xp`; imported late, since few programs use it."""
    from ..array_api.namespace import Main

    return Main


NAMESPACES.append(main_namespace)
add_hints(Session, "a session", SESSION)
make_public(Session)


def of_op(invocation: Any) -> OpInvocation:
    """A handler's invocation without its session; MetadataTypeError for anything else."""
    return OpInvocation(*checked(invocation, Invocation)[1:])


def checked(given: Any, kind: type[Kind]) -> Kind:
    """A handler's argument; MetadataTypeError if it is of another kind."""
    if not isinstance(given, kind):
        raise located(MetadataTypeError(f"expected an {kind.__name__}, got {type(given).__name__}"))
    return given
