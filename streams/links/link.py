"""The interface between a machine and the links to other nodes.

A *transfer* is one value on its way, named by 16 bytes. It has two *halves*: the sender's begins with `offer`, the
receiver's with `expect`, or with `take` where memory is there already, in whichever order. Each half ends once:

    sender      offer -> done                          or fail, instead of `offer` or any time before `done`
    receiver    expect -> offered, receive -> done     or refuse, instead of any of these or any time before `done`
                take -> done                           or refuse, likewise

Guarantees of a link
    - Each `offer`, `expect`, `receive` and `take` is answered by one call of its callback, also after `fail` and
      `refuse`, and also if the other node is lost. Behind `done` the link does not touch the array.
    - The half that is left when the other one fails, is refused, or is lost with its node, gets the error, however late
      it begins. Only of the oldest of very many failures may this be forgotten.
    - Values wait at the sender, but for small ones: a link holds a bounded number of bytes.
    - Callbacks come on any thread, also within the call that they answer; never under a lock.

A machine begins each half once, and calls nothing for a half that has ended. Any thread may call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta

Array: TypeAlias = Any  # of NumPy, contiguous
Told: TypeAlias = Callable[[TensordError | None], None]
Merge: TypeAlias = Callable[[int, Array], None]  # takes the elements of a piece, and the number of the first of them
Into: TypeAlias = Any  # where a value goes: an Array, or a Merge

SMALL: Final = 64 << 10  # bytes of a value that may be sent before the receiver has memory


class Link(Protocol):
    """Carries values between this machine and one other node."""

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: Told) -> None:
        """Send a value once the peer has memory. `done`: the peer has the bytes, or an error."""

    def fail(self, transfer: bytes, error: TensordError) -> None:
        """Nothing will be sent, offered or not: the peer gets the error."""

    def expect(self, transfer: bytes, meta: Meta, offered: Told) -> None:
        """Tell once the peer offers the value: None, its error, or that it offers another meta."""

    def receive(self, transfer: bytes, array: Array, done: Told) -> None:
        """Memory is there: the bytes go into this array, which is writable. Called once, after `offered`."""

    def take(self, transfer: bytes, meta: Meta, into: Into, done: Told) -> None:
        """Receive as soon as the peer offers: into an array, or by merging. Pieces are merged in their order, on the
        thread that brings them, out of memory of the link's; one that cannot be merged fails the half at its end."""

    def refuse(self, transfer: bytes, error: TensordError) -> None:
        """Nothing will be received, expected or not: the peer gets the error."""


class Links(Protocol):
    """All links of a machine. `node`: its own name."""

    node: str

    def to(self, node: str, incarnation: int = 0) -> Link:
        """The link to a node, which may be this one. MetadataError, saying which there are, if there is none of that
        name; NodeLost if the node is lost, or its daemon is of another incarnation than is meant (0: of any)."""
