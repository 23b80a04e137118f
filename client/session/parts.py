"""All parts of a session: those that lie in rooms above the core. And what the parts of the facade share: each is a
class of methods on that core, which `Session` inherits."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, TypeVar

from ..calls.calls import Calls
from ..calls.scopes import Scopes
from ..core.core import Core
from ..files.savings import Savings
from ..global_tensors.calls import GlobalCalls
from ..outbox.outbox import Outbox
from ..routines.control_flow import Flows
from ..sharing.names import Names
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps

T = TypeVar("T")


class Facet:
    """Some of a session's methods. A method that waits is a procedure of steps, for threads and for event loops."""

    _core: Parts

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(self._core.outbox, steps)


def listed(given: Any) -> Any:
    """The items of an iterable, taken outside of all locks: it may wait for other threads. Steps refuse the rest."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Sized) else given


class Parts(Core):
    """The core of a session, whole."""

    def __init__(self, outbox: Outbox, address: str, hint: str) -> None:
        super().__init__(outbox, address, hint)
        self.calls = Calls(outbox)
        self.global_calls = GlobalCalls(outbox)
        self.scopes = Scopes(outbox)
        self.opened, self.innermost = self.scopes.opened, self.scopes.innermost
        self.savings = Savings()
        self.names = Names(outbox)
        self.flows = Flows()
