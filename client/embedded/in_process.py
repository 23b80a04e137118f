"""What the transports to machines in this process have in common: requests, replies, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.frames import MAPPED_ARRAY
from ...interpreter.wire.host_memory import HostMemory
from ..transport.interface import Reply
from ..transport.loans import Loans, lent


def plain_array(meta: Meta) -> NDArray[Any]:
    """Plain memory; the machine adopts it."""
    return np.empty(meta.shape, meta.dtype)


class InProcessTransport:
    """The part of a session's connection that does not depend on the machine. `new_array`: see `Transport`."""

    def __init__(
        self,
        devices: Mapping[str, frozenset[str]],
        inline_work: int,
        new_array: Callable[[Meta], NDArray[Any]] = plain_array,
    ) -> None:
        self.new_array = new_array
        self.devices = dict(devices)
        self.inline_work = inline_work
        self.maps = self.eager = False
        self.opens_files, self.names_files = True, False
        self._lender = object()  # what lends host arrays: they outlive the transport
        self._replies: dict[int, Reply] = {}
        self._numbers = itertools.count(1)
        self._tell_loss: Callable[[TensordError], None] = lambda _error: None

    def host_memory(self, nbytes: int) -> HostMemory | None:
        """Memory for a host array: such as for an upload, which the machine adopts."""
        if nbytes < MAPPED_ARRAY:
            return None
        return HostMemory.over(self.new_array(Meta.of((nbytes,), "uint8")), nbytes, Loans(self._lender))

    def lend(self, values: Any, dtype: Any) -> tuple[Meta, NDArray[Any]] | None:
        """Meta and payload of an upload from a host array of this session."""
        return lent(values, dtype, self._lender)

    def tell_loss_to(self, tell: Callable[[TensordError], None]) -> None:
        """Set the function to call when the machine has ended."""
        self._tell_loss = tell

    def request(self) -> tuple[int, Reply]:
        """A new request."""
        number, reply = next(self._numbers), Reply()
        self._replies[number] = reply
        return number, reply

    def ending(self) -> None:
        """Nothing to do: to send a batch takes no time."""

    def _answer(self, request: int, value: Any, error: TensordError | None) -> None:
        reply = self._replies.pop(request, None)
        if hasattr(value, "__next__"):  # slices, for those who have others to serve meanwhile
            value = [one for part in value for one in part]
        if reply is not None:
            if error is not None:
                error.heard = True
            reply.set(value, error)

    def _lose_replies(self, error: TensordError) -> None:
        """Fail all open replies, and take no more: no answers will come."""
        self._tell_loss(error)
        for reply in list(self._replies.values()):
            reply.set(None, error)
