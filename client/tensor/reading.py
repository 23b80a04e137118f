"""Reads a small tensor piece by piece: the second piece fetches the whole, and later pieces need no round trip.

A program that reads `x[0]`, `x[1]`, ... one after the other would wait for the wire each time. Only this process writes
to a tensor, unless the tensor has a name that other sessions know; so a fetched value stays valid until this process
writes to the tensor. A piece therefore remembers the tensor of which it is a piece. When a second piece is read, the
whole tensor is fetched instead, once, if it is small.

Guarantees. A piece has the value that a fetch of it would give: that of the whole when the piece was taken. A tensor is
written in place only under the outbox's lock, where it drops its `TensorReading` first. Pieces taken before keep the
old `TensorReading`: it is valid for them if the value had come by then, and is not filled afterwards. A tensor that
another session may write to (published, looked up) is never remembered. If a fetch would be refused (after `cancel`,
inside `atomic`, after the end of the session) a remembered value is refused, too. Nothing here keeps a tensor alive.

Rejected: remembering the result of `numpy()`. Its callers may write into it, and a copy would cost every caller that
reads once.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.schema.indexing import Index, native_index
from ...interpreter.types.meta import Meta

if TYPE_CHECKING:
    from .handle import Handle

MAX_WHOLE_BYTES: Final = 1 << 14  # bytes of a tensor that is fetched as a whole
MAX_DEPTH: Final = 16  # pieces of pieces: a deeper one counts as a tensor of its own


class TensorReading:
    """This process's knowledge of one tensor: its value, or the tensor of which it is a piece.

    Valid as long as it is the tensor's own `_reading`; for pieces already taken, for ever. It is not used after the
    session was cancelled or restarted, since the state of a piece is then unknown here.
    """

    __slots__ = ("count", "depth", "era", "index", "origin", "tensor", "value")

    def __init__(self, tensor: Handle | None, origin: TensorReading | None = None, index: Index = ()) -> None:
        self.tensor: Any = (lambda: None) if tensor is None else weakref.ref(tensor)
        self.origin = origin
        self.index = index
        self.depth: int = 0 if origin is None else origin.depth + 1
        self.era: int = origin.era if origin is not None else 0 if tensor is None else tensor._core.cancellation.era
        self.count = 0  # pieces that were read
        self.value: NDArray[Any] | None = None

    def known(self) -> NDArray[Any] | None:
        """The tensor's value, fetched unless this is its first piece; None if it is not fetched."""
        if self.value is None:
            whole = None if self.origin is None else self.origin.known()
            self.value = self._fetched() if whole is None else whole[native_index(self.index)]
        return self.value

    def remembered(self) -> NDArray[Any] | None:
        """The tensor's value if it is known without a question; else None."""
        if self.value is None and self.origin is not None:
            whole = self.origin.remembered()
            return None if whole is None else whole[native_index(self.index)]
        return self.value

    def _fetched(self) -> NDArray[Any] | None:
        self.count += 1
        tensor = self.tensor()
        if self.count == 1 or tensor is None or tensor._reading is not self:
            return None
        value: NDArray[Any] = tensor._core.answers.fetch(tensor)
        return value if tensor._reading is self else None  # otherwise another thread has written to it


SHARED: Final = TensorReading(None)  # the reading of every tensor to which other sessions may write


def of(tensor: Handle) -> TensorReading | None:
    """The `TensorReading` that pieces of the tensor remember, or None."""
    reading: TensorReading | None = tensor._reading
    if reading is SHARED:
        return None
    if reading is None or reading.depth == MAX_DEPTH or reading.era != tensor._core.cancellation.era:
        meta = tensor._meta
        reading = _begun(tensor) if type(meta) is Meta and meta.nbytes <= MAX_WHOLE_BYTES else None
    return reading


def _begun(tensor: Handle) -> TensorReading | None:
    with tensor._core.outbox.lock:  # another thread may be publishing it
        if tensor._reading is SHARED:
            return None
        reading = tensor._reading = TensorReading(tensor)
    return reading


def forget(tensor: Handle) -> None:
    """Forget the value of a tensor before a write; the caller holds the outbox's lock."""
    if tensor._reading is not SHARED:
        tensor._reading = None


def mark_shared(tensor: Handle) -> None:
    """Note that other sessions may write to the tensor."""
    with tensor._core.outbox.lock:
        tensor._reading = SHARED


def recall(tensor: Handle, *, asks: bool = True) -> NDArray[Any] | None:
    """The value of a piece, as the caller's own array; None if its whole is unknown. `asks`: may fetch it."""
    reading, core = tensor._reading, tensor._core
    if reading is None or reading.origin is None or reading.era != core.cancellation.era:
        return None
    if not core.outbox.answers():
        return None
    whole = reading.origin.known() if asks else reading.origin.remembered()
    return None if whole is None else np.array(whole[native_index(reading.index)])
