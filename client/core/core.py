"""The core of a session: its parts. Handles, and all rooms below `session`, refer to the core and not to the session.

The public `Session` is a facade of the core for users; all its names are public. Tensors keep the core alive, and go
straight to the part that they need. When the last tensor and the session are gone, the connection is closed. So nothing
here refers to the session, or to a tensor.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from numbers import Integral
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...interpreter.concurrency.finalisers import redone
from ...interpreter.errors import MetadataTypeError, metadata_error
from ...interpreter.layouts.placement import Placement
from ...interpreter.ops.random import check_seed
from ...interpreter.wire.addresses import is_local
from ..locations.locations import located
from ..outbox.cancellation import CancellationCount
from ..outbox.outbox import Outbox
from ..requests.answers import Answers
from ..requests.effects import SessionEffects
from ..requests.printing import Printing
from .scopes import Scopes

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ..calls.calls import Calls
    from ..cluster.cluster import Cluster
    from ..global_tensors.calls import GlobalCalls


class RandomState:
    """The seed of a session and the number of its next random call, as one value, so that no call gets a new seed with
    an old number. Without a seed, the operating system gives one."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed(int.from_bytes(os.urandom(8)) if seed is None else seed)

    def seed(self, seed: int) -> None:
        """Restart at call 0 of a seed; MetadataError unless the seed is an int in [0, 2**64)."""
        self._stream = (as_seed(seed), itertools.count())

    def next(self) -> tuple[int, int]:
        """The seed and the number of the next call."""
        seed, calls = self._stream
        return seed, next(calls)

    def take(self, count: int) -> tuple[int, list[int]]:
        """The seed and the numbers of the next `count` calls."""
        seed, calls = self._stream
        return seed, [next(calls) for _ in range(count)]


def as_seed(seed: Any) -> int:
    """The seed as a Python int; MetadataError unless it is an int in [0, 2**64)."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise located(MetadataTypeError(f"seed: expected an int, got {type(seed).__name__}", op="seed"))
    number = int(seed)
    try:
        check_seed(number, (), {})
    except ValueError as error:
        raise located(metadata_error(error, f"seed: {error}", "seed")) from None
    return number


class Core:
    """The parts of one session that rooms above need. `Parts` makes the parts that belong to higher rooms.

    `release` takes the id of a tensor whose handle was dropped. `opened` and `innermost` are those of the scopes; each
    new handle uses them. `hint`: a text that errors add if the missing daemon may be their cause.
    """

    calls: Calls
    global_calls: GlobalCalls

    def __init__(self, outbox: Outbox, address: str, hint: str) -> None:
        self.address = address
        self.hint = hint
        self.node: str = outbox.transport.node  # the machine's name in a cluster; "" for a single machine
        self.cluster: Cluster | None = None  # the cluster of the session
        self.strict = False  # placement is strict: only the user moves tensors
        self.loop: AbstractEventLoop | None = None  # the loop that opened it, in which coroutine functions run
        self.placement: Placement | None = None  # default placement of new tensors without a device
        self.outbox = outbox
        self.release = outbox.release
        self.answers = Answers(outbox)
        self.effects = SessionEffects(outbox)
        self.printing = Printing(outbox, self.effects)
        self.cancellation = CancellationCount(outbox)
        self.random_state = RandomState()
        self.scopes = Scopes(outbox)
        self.opened, self.innermost = self.scopes.opened, self.scopes.innermost

    @redone
    def __del__(self) -> None:
        # Runs in any thread, inside any lock.
        with suppress(AttributeError):  # `__init__` has not finished
            self.outbox.transport.abandon()

    def run_in(self, loop: AbstractEventLoop) -> None:
        """Make coroutine functions run in the event loop in which the session was opened."""
        self.loop = self.outbox.transport.callers.loop = loop

    def xp(self) -> ModuleType:
        """The array API namespace of the session, made by a room above."""
        raise NotImplementedError

    @property
    def transport(self) -> Any:
        return self.outbox.transport

    @property
    def devices(self) -> list[str]:
        """Names of the machine's devices; the first is the default."""
        return list(self.transport.devices)

    @property
    def closed(self) -> bool:
        """Return whether the session was closed, or its machine was lost."""
        return bool(self.transport.lost)

    def __repr__(self) -> str:
        state = "closed" if self.closed else ", ".join(self.transport.devices)
        where = ", in this process" if is_local(self.address) else ""
        return f"<tensord.Session at {self.address}{where}: {state}>"
