"""What the parts of the facade share: each is a class of methods on the core of a session, which `Session` inherits."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, TypeVar

from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps
from .parts import Parts

T = TypeVar("T")


class Facet:
    """Some of a session's methods. What waits is in steps, which its two forms share: a thread sleeps in between, or an
    event loop goes on."""

    _core: Parts

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(self._core.outbox, steps)


def listed(given: Any) -> Any:
    """What the user's iterable gives, taken outside of all locks and regions: it may wait for other threads' ops.

    What is no iterable, or a text, is refused by the steps."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Sized) else given
