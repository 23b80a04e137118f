"""Questions to the machine, and waiting for the answers: values, readiness, reports.

The methods `ask...` return a `Reply` at once, and `fetching...` are steps (`waiting/steps.py`); `fetch`, `query`,
`await_ready` and `look_at` wait for the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Fetch, Query, Sync, Wait
from ...interpreter.wire.segments import SHARED_FROM
from ..locations.locations import located
from ..outbox.outbox import Build, Outbox
from ..transport.replies import Reply
from ..waiting.steps import Steps

MAX_TIMEOUT = 1e9  # seconds: some thirty years


class AskedTensor(Protocol):
    """A tensor about which questions are asked: its id, and its meta once known."""

    _id: int
    _meta: Meta | None


class Answers:
    """A session's questions, and their answers. Every question sends the unsent messages first."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def fetch(self, tensor: AskedTensor) -> NDArray[Any]:
        return fetched(tensor, self._outbox.answered(self.question(tensor)))

    def fetching(self, tensor: AskedTensor) -> Steps[NDArray[Any]]:
        return fetched(tensor, (yield self._outbox.ask(self.question(tensor))))

    def fetching_all(self, tensors: Sequence[AskedTensor]) -> Steps[list[NDArray[Any]]]:
        """The values of several tensors, in one round trip."""
        replies = self._outbox.ask_all([self.question(tensor) for tensor in tensors])
        values = []
        for tensor, reply in zip(tensors, replies, strict=True):
            values.append(fetched(tensor, (yield reply)))
        return values

    def question(self, tensor: AskedTensor) -> Build:
        """The question for the value. A large value is read in the daemon's memory, as an *export* with its own id."""
        outbox, meta = self._outbox, tensor._meta
        if not (outbox.transport.maps and type(meta) is Meta and meta.nbytes >= SHARED_FROM):
            return partial(Fetch, tensor._id, export=0)
        return lambda request, location: Fetch(tensor._id, request, location, outbox.new_id())

    def ask_ready(self, tensor: AskedTensor) -> Reply:
        """Ask to be told when the tensor is ready. Does not wait."""
        return self._outbox.ask(partial(Wait, (tensor._id,)))

    def await_ready(self, tensor: AskedTensor, timeout: float | None) -> Any:
        """Wait until the tensor is ready; returns its meta and home in wire form."""
        return self._outbox.answered(partial(Wait, (tensor._id,)), seconds("wait", timeout))

    def query(self, what: str, *arguments: Any, timeout: float | None = None) -> Any:
        """The machine's answer to a question about itself; waits. TimeoutError after `timeout` seconds."""
        return self._outbox.await_reply(self.ask(what, *arguments), timeout)

    def ask(self, what: str, *arguments: Any) -> Reply:
        """Ask the machine about itself. Does not wait."""
        return self._outbox.ask(lambda request, _: Query(what, arguments, request), located=False)

    def look_at(self, tensor: AskedTensor, timeout: float) -> dict[str, Any]:
        """The present state, error and meta of a tensor. Moves nothing; TimeoutError without an answer."""
        found: dict[str, Any] = self._outbox.await_reply(self.ask("state", tensor._id), timeout)
        return found

    def ask_to_catch_up(self) -> Reply:
        """A question that a daemon answers at once, after all answers that are ready. Does not wait."""
        return self.ask("names", 0)

    def ask_to_sync(self) -> Reply:
        """Ask to be told when everything issued so far has ended, with the number of failures since. Does not wait."""
        return self._outbox.ask(Sync)


def fetched(tensor: AskedTensor, value: NDArray[Any]) -> NDArray[Any]:
    """The fetched value; the tensor learns its meta from it."""
    if tensor._meta is None:
        tensor._meta = Meta.of(value.shape, value.dtype)
    return value


def seconds(what: str, timeout: Any) -> float | None:
    """A timeout in seconds: None for no limit, 0 for a negative one. MetadataError unless it is a real number."""
    if timeout is None:
        return None
    if isinstance(timeout, (bool, np.bool_)) or not isinstance(timeout, (int, float, np.integer, np.floating)):
        kind = type(timeout).__name__
        raise located(MetadataTypeError(f"{what}: a timeout must be a number of seconds or None, not a {kind}"))
    if isinstance(timeout, (float, np.floating)) and math.isnan(timeout):
        raise located(MetadataError(f"{what}: the timeout is not a number (NaN)"))
    return float(min(max(timeout, 0), MAX_TIMEOUT))
