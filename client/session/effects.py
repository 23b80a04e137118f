"""Side effects in program order, as methods of a session."""

from __future__ import annotations

from collections.abc import Callable

from ..calls.checks import own
from ..locations.tracebacks import make_public
from ..outbox.current import capture_of
from ..tensor.tensor import Tensor
from ..waiting.steps import Awaiting, on_thread
from .parts import Facet


class SideEffects(Facet):
    """Callbacks and prints on chains."""

    def chain(self) -> int:
        """A new chain: side effects on different chains are not ordered against each other."""
        return self._core.effects.new_chain()

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call back with the tensors' values (host arrays of its own), after the side effects issued before.

        Returns at once. The callback runs on the thread that drives the machine and may neither submit nor wait. If
        it raises, or an operand is poisoned, the effects behind it in the chain do not happen; `check_chain` raises
        the error.
        """
        owned = [own(self._core, tensor) for tensor in tensors]
        capture = capture_of(self._core.outbox)
        if capture is not None:
            capture.effect(callback, owned, chain)
        else:
            self._core.effects.issue(callback, tuple(tensor._id for tensor in owned), chain)

    def check_chain(self, chain: int | None = None) -> None:
        """Wait for a chain's side effects; raises the error that stopped it."""
        on_thread(self._core.outbox, self._core.effects.checking(chain))

    def check_chain_async(self, chain: int | None = None) -> Awaiting[None]:
        """`await session.check_chain_async(chain)`: its side effects have happened. See `check_chain`."""
        return self._awaiting(self._core.effects.checking(chain))

    def print(self, *values: Tensor | object, sep: str = " ", chain: int | None = None) -> None:
        """Print tensors' values and other things in program order: an `effect` on a chain.

        Returns at once. A tensor that has failed is printed as its error. `close` waits for open prints, and so does
        the end of the program, for some seconds at most. After an error of another effect in the chain nothing more is
        printed; `check_chain` says why.
        """
        owned = [own(self._core, value) for value in values if isinstance(value, Tensor)]
        parts = [None if isinstance(value, Tensor) else str(value) for value in values]
        capture = capture_of(self._core.outbox)
        if capture is not None:
            capture.print(parts, owned, sep, chain)
        else:
            self._core.printing.issue(parts, tuple(tensor._id for tensor in owned), sep, chain, self)


make_public(SideEffects)
