"""The memory of GPUs that a session's client reads without a copy, in this process or in the client's own.

A client in another process gets memory only if the machine notices the end of that process, so that it can reuse the
memory then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...streams.device import BlockUser

ELSEWHERE: Final = "which is in no process of the same user on the same machine"


class GpuSharing:
    """The right of one session's client to read memory of GPUs, and the blocks that the client has.

    `in_place`: the client is in this process, and reads the values themselves. `refusal`: the reason why a client in
    another process gets no blocks, or "". `watch` begins to watch the client's process. `blocks`: the client's blocks,
    by the values in them (`admission.shares`).
    """

    __slots__ = ("_user", "blocks", "in_place", "refusal", "watch")

    def __init__(self, *, in_place: bool) -> None:
        self.in_place = in_place
        self.refusal = ELSEWHERE
        self.watch: Callable[[], BlockUser] | None = None
        self.blocks: dict[Any, Any] = {}
        self._user: BlockUser | None = None

    def user(self) -> BlockUser | None:
        """The client's process, watched since its first block; None if its end cannot be noticed."""
        if self._user is None and self.watch is not None:
            self._user = self.watch()
        return self._user
