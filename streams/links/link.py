"""The interface between a machine and the links to other nodes.

A *transfer* moves one value, and is named by 16 bytes. It has two *halves*: the sender's begins with `offer`; the
receiver's begins with `expect`, or with `take` if it has memory already. Either half may begin first. Each ends once:

    sender      offer -> done                          or fail, instead of `offer` or any time before `done`
    receiver    expect -> offered, receive -> done     or refuse, instead of any of these or any time before `done`
                take -> done                           or refuse, likewise

Guarantees of a link
    - Each `offer`, `expect`, `receive` and `take` is answered by one call of its callback, also after `fail` and
      `refuse`, and also if the other node is lost. After `done` the link does not use the array.
    - If one half fails, is refused, or is lost with its node, the other half gets the error, however late it begins.
      Only the oldest of very many failures may be forgotten.
    - Values wait at the sender, except small ones, so a link holds a bounded number of bytes.
    - Callbacks come on any thread, also within the call that they answer; never under a lock.

A machine begins each half once, and calls nothing for a half that has ended. Any thread may call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta

Array: TypeAlias = Any  # a contiguous NumPy array
OnEnd: TypeAlias = Callable[[TensordError | None], None]
Merge: TypeAlias = Callable[[int, Array], None]  # takes the index of a piece's first element, and its elements
Into: TypeAlias = Any  # the destination of a value: an Array, or a Merge

SMALL_BYTES: Final = 64 << 10  # bytes of a value that may be sent before the receiver has memory


class NodeLink(Protocol):
    """Carries values between this machine and one other node."""

    def offer(self, transfer: bytes, meta: Meta, array: Array, done: OnEnd) -> None:
        """Send a value once the peer has memory. `done` is called when the peer has the bytes, or with an error."""

    def fail(self, transfer: bytes, error: TensordError) -> None:
        """End the sender's half, offered or not: nothing is sent, and the peer gets the error."""

    def expect(self, transfer: bytes, meta: Meta, offered: OnEnd) -> None:
        """Call `offered` once the peer offers the value: with None, with the peer's error, or with an error if the
        metas differ."""

    def receive(self, transfer: bytes, array: Array, done: OnEnd) -> None:
        """Receive the bytes into this writable array. Called once, after `offered`."""

    def take(self, transfer: bytes, meta: Meta, into: Into, done: OnEnd) -> None:
        """Receive once the peer offers the value: into an array, or by merging. Pieces are merged in order, from the
        link's own memory, on the thread that brings them. If a piece cannot be merged, the half fails at its end."""

    def refuse(self, transfer: bytes, error: TensordError) -> None:
        """End the receiver's half, expected or not: nothing is received, and the peer gets the error."""


class Links(Protocol):
    """All links of a machine. `node`: the machine's own name."""

    node: str

    def to(self, node: str, incarnation: int = 0) -> NodeLink:
        """The link to a node, which may be this one. MetadataError if there is no node of that name, with the known
        names. NodeLost if the node is lost, or its daemon has another incarnation (0: any is accepted)."""
