"""All parts of a session: the core, and parts of higher rooms. Also the base of the facade's parts: each is a class of
methods on that core, which `Session` inherits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, TypeVar

from ..calls.calls import Calls
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
    """The items of an iterable, taken outside of all locks, since it may wait for other threads. The steps refuse other
    values."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Sized) else given


class Parts(Core):
    """The complete core of a session."""

    def __init__(self, outbox: Outbox, address: str, hint: str) -> None:
        super().__init__(outbox, address, hint)
        self.calls = Calls(outbox)
        self.global_calls = GlobalCalls(outbox)
        self.savings = Savings()
        self.names = Names(outbox)
        self.flows = Flows()
