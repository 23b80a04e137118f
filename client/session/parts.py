"""All parts of a session: the core, and parts of higher rooms. Also the base of the facade's parts: each is a class of
methods on that core, which `Session` inherits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import ref

from ...interpreter.errors import MetadataTypeError
from ..calls.calls import Calls
from ..calls.op_invocation import OpInvocation
from ..core.core import Core
from ..files.writes import UnfinishedWrites
from ..global_tensors.calls import GlobalCalls
from ..locations.locations import located
from ..outbox.outbox import Outbox
from ..routines.control_flow import Flows
from ..sharing.names import Names
from ..tensor.tensor import Tensor
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps
from .handlers import DEFAULT_HANDLER, Handler, Invocation

if TYPE_CHECKING:
    from ..array_api.namespace import Namespace
    from .session import Session

T = TypeVar("T")


class Facet:
    """Some of a session's methods. A method that waits is a procedure of steps, for threads and for event loops."""

    _core: Parts

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(self._core.outbox, steps)


def listed(given: Any) -> Any:
    """The items of an iterable, taken outside of all locks, since it may wait for other threads. The steps refuse other
    values."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Sized) else given


class Parts(Core):
    """The complete core of a session."""

    facade: Callable[[Parts], Session]  # makes one from the core

    def __init__(self, outbox: Outbox, address: str, hint: str) -> None:
        super().__init__(outbox, address, hint)
        self.calls = Calls(outbox)
        self.global_calls = GlobalCalls(outbox)
        self.writes = UnfinishedWrites()
        self.names = Names(outbox)
        self.flows = Flows()
        # Weak references: the namespace and the session refer to the core.
        self.namespace: Callable[[], Namespace | None] = lambda: None
        self.session: Callable[[], Session | None] = lambda: None
        self.use(DEFAULT_HANDLER)

    def as_session(self) -> Session:
        """The session for users' code; a new facade if the program has dropped its own."""
        return self.session() or self.facade(self)

    def xp(self) -> Namespace:
        return self.as_session().xp

    def use(self, handler: Handler) -> None:
        """Make every op pass this chain of handlers. MetadataTypeError for an object that cannot be called."""
        if not callable(handler):
            message = f"a handler is called with an Invocation; {type(handler).__name__} cannot be called"
            raise located(MetadataTypeError(message))
        self.handler = handler
        self.calls.use(SessionHandlers(self, handler), native=handler is DEFAULT_HANDLER)


class SessionHandlers:
    """A session's handlers as its calls use them: adds the session to each invocation.

    The core owns the calls, and the calls own this object, so the reference to the core is weak.
    """

    def __init__(self, core: Parts, handler: Handler) -> None:
        self._core = ref(core)
        self.handler = handler

    def __call__(self, invocation: OpInvocation) -> list[Tensor]:
        core = cast(Parts, self._core())  # alive, since the caller refers to it
        return self.handler(Invocation(core.as_session(), *invocation))
