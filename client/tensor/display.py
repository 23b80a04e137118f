"""A tensor's texts for people: `str`, `repr`, and HTML for notebooks.

`str` shows the value and waits for it, as NumPy does. `repr` shows the state and waits for no value, since debuggers
and error messages call it anywhere; it raises nothing and changes nothing, so it does not affect a program. If NumPy
prints a value with "...", only the corners are fetched.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta, Shape

if TYPE_CHECKING:
    from .tensor import Tensor

PATIENCE: Final = 0.25  # seconds that the machine has to say whether a tensor is ready
MAX_ERROR_LENGTH: Final = 300  # characters
MAX_HTML_LENGTH: Final = 20_000  # characters of a value
# Columns of numbers need a monospaced font, which some notebooks' styles take away from <pre>.
FONT: Final = 'style="font-family: var(--jp-code-font-family, monospace)"'


def value_text(tensor: Tensor) -> str:
    """The value as NumPy prints it, under its print options. Waits; raises the tensor's error."""
    options = np.get_printoptions()
    meta, edge = tensor._known_meta(), int(options["edgeitems"])
    whole = meta.size <= options["threshold"] or meta.ndim == 0 or max(meta.shape) <= 2 * edge
    if whole or not edge:  # with edgeitems=0 NumPy prints the last element, formatted to fit all elements
        return str(tensor.numpy())
    return np.array2string(corners(tensor, meta.shape, edge), threshold=0)


def corners(tensor: Tensor, shape: Shape, edge: int) -> NDArray[Any]:
    """The elements of a large array that NumPy prints, and one more along each shortened axis, so that it prints "...".

    Waits.
    """
    positions = np.ix_(*(ends(size, edge) for size in shape))
    xp, device = tensor._core.xp(), tensor.device
    return tensor[tuple(xp.asarray(each, device=device) for each in positions)].numpy()


def ends(size: int, edge: int) -> NDArray[np.int64]:
    """The printed positions along an axis, with one in between if some are left out."""
    if size <= 2 * edge:
        return np.arange(size, dtype=np.int64)
    return np.concatenate([np.arange(edge + 1), np.arange(size - edge, size)], dtype=np.int64)


def described(tensor: Tensor, state: str, meta: Meta | None) -> str:
    """The one-line summary of a tensor in the given state."""
    return f"<tensor {tensor._id} {'of unknown shape' if meta is None else repr(meta)} on {tensor.device}, {state}>"


def state_of(tensor: Tensor) -> tuple[str, Meta | None]:
    """ "ready", "pending", "failed: ...", "lost: ..." or "unknown: ...", and the meta as far as it is known."""
    core, meta = tensor._core, tensor._meta
    if core.closed:
        return "lost: its session has ended", meta
    lock = core.outbox.lock
    try:
        if not lock.acquire(blocking=False):  # another thread is inside an atomic block
            return "pending", meta
        lock.release()
        answer = core.answers.look_at(tensor._living(), PATIENCE)
    except TimeoutError:
        return "unknown: the machine does not answer", meta
    except TensordError:  # inside an atomic block, in a signal handler or in a callback: nothing can be asked
        return "pending", meta
    if answer["shape"] is not None:
        meta = Meta.of(tuple(answer["shape"]), answer["dtype"])
    return f"failed: {shortened(answer['error'])}" if answer["error"] else answer["state"], meta


def shortened(error: str) -> str:
    """The error's text on one line of bounded length."""
    text = " ".join(error.split())
    return text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}..."


def html(tensor: Tensor) -> str:
    """The summary for notebooks, with the value if it is ready.

    Does not wait for a computation; a value that is ready is fetched.
    """
    state, meta = state_of(tensor)
    head = f"<code {FONT}>{escape(described(tensor, state, meta))}</code>"
    if state != "ready":
        return head
    try:
        text = value_text(tensor)
    except TensordError:  # a write has failed meanwhile
        return head
    shown = text if len(text) <= MAX_HTML_LENGTH else f"{text[:MAX_HTML_LENGTH]}\n..."
    return f"{head}<pre {FONT}>{escape(shown)}</pre>"
