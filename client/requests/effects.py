"""Side effects and their chains: user code that runs in program order, with the values that tensors have there.

A chain is a number. The effects on one chain run in order, and stop with the first one that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, ProtocolError
from ...interpreter.wire.forms import shown
from ...interpreter.wire.messages import Chain, Effect, encode_message
from ..locations.locations import located
from ..outbox.callbacks import refusing
from ..outbox.current import refuse_captured
from ..outbox.outbox import Outbox
from ..transport.replies import Reply
from ..waiting.steps import Steps


class SessionEffects:
    """The side effects of one session, and its chains, of which one is the default."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._chains: set[int] = set()
        self._default = self._add_chain()  # sent with the session's first message
        self._call_chain = 0

    def new_chain(self) -> int:
        refuse_captured(self._outbox, "a chain cannot be made")
        id_ = self._add_chain()
        self._outbox.appended()
        return id_

    def chain_of_host_calls(self) -> int:
        """The chain that host calls in blocks of routines read.

        Calls that only read a chain are not ordered by it, and do not stop it if they fail. An effect on the chain,
        such as the one at the end of a block, comes after all of them.
        """
        with self._outbox.lock:
            self._call_chain = self._call_chain or self._add_chain()
            return self._call_chain

    def _add_chain(self) -> int:
        with self._outbox.lock, SHIELD:
            id_ = self._outbox.new_id()
            self._outbox.messages.append(encode_message(Chain(id_)))
            self._chains.add(id_)
        return id_

    def issue(self, callback: Callable[..., None], ids: tuple[int, ...], chain: int | None) -> None:
        """Call back with the values of the tensors with these ids, after the effects already on the chain."""
        check_callback(callback)
        chain_number, guarded = self.chain_number(chain), refusing(self._outbox, callback)
        with self._outbox.lock, SHIELD:
            location = self._outbox.locations.here(2)
            self._outbox.messages.append(encode_message(Effect(ids, chain_number, guarded, 0, location)))
        self._outbox.appended()

    def issue_tolerant(self, callback: Callable[..., None], ids: tuple[int, ...], chain: int | None) -> Reply:
        """As `issue`, for a callback that accepts errors in place of values; the reply is set when it has run."""
        chain_number = self.chain_number(chain)
        with self._outbox.lock, SHIELD:
            location = self._outbox.locations.here(2)
            reply: Reply
            request, reply = self._outbox.transport.request()
            self._outbox.messages.append(
                encode_message(Effect(ids, chain_number, callback, request, location, tolerant=True))
            )
        self._outbox.appended()
        return reply

    def checking(self, chain: int | None) -> Steps[None]:
        """Wait for a chain; raises the error that stopped it."""
        chain_number = self.chain_number(chain)
        yield self._outbox.ask(lambda request, at: Effect((), chain_number, lambda: None, request, at))

    def chain_number(self, chain: int | None) -> int:
        """The number of a chain, by default the session's own; ProtocolError for chains of other sessions."""
        if chain is not None and (type(chain) is not int or chain not in self._chains):
            raise located(ProtocolError(f"{shown(chain)} is not a chain of this session; make one with chain()"))
        return self._default if chain is None else chain


def check_callback(callback: Any, what: str = "effect") -> None:
    """MetadataError unless the callback can be called."""
    if not callable(callback):
        raise located(MetadataError(f"{what}: a callback must be a function, not {type(callback).__name__}"))
