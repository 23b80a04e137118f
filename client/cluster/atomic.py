"""Atomic blocks of a cluster session: the ops inside are one group, on one node.

The first op decides on the node; an op on another node then raises MetadataError. The check is in the list to which the
block's messages are appended, so an op outside of such blocks pays nothing.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError
from ..core.core import Core
from ..locations.locations import located
from ..outbox.batches import AtomicGroup, Closed

if TYPE_CHECKING:
    from .cluster import Cluster


class OneNodeGroup(AtomicGroup):
    """The messages of a block on one node: a list that checks that the block belongs to that node."""

    def __init__(self, block: ClusterBlock, node: str) -> None:
        super().__init__()
        self._block = block
        self._node = node

    def append(self, message: list[Any]) -> None:
        """Append a message; MetadataError at the user's line if the block belongs to another node."""
        if self._block.node is None:
            self._block.node = self._node
        elif self._block.node != self._node:
            raise located(
                MetadataError(
                    f"this atomic block is for {self._block.node}, and the op is on {self._node}: a group runs "
                    "on one node; make two blocks, or move the tensors first (to_device)"
                )
            )
        super().append(message)


class ClusterBlock:
    """An atomic block on all sessions of a cluster. `node`: the node of the block, once an op has decided it."""

    __slots__ = ("__weakref__", "_around", "_cluster", "_undo", "node")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._undo = ExitStack()
        self._around: ClusterBlock | None = None  # the surrounding block
        self.node: str | None = None

    def __enter__(self) -> None:
        gate = self._cluster.gate
        try:
            with gate.lock, SHIELD:
                gate.lock.acquire()
                self._undo.callback(gate.lock.release)
                self._around, gate.block = gate.block, gate.block or self
                self._undo.callback(self._leave)
                SHIELD.hold(self)
            if self._around is None:
                for core in self._cluster.cores():
                    self.join(core)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def join(self, core: Core) -> None:
        """Open the block on that session, too: its node may be that of the first op."""
        self._undo.enter_context(core.outbox.atomic())
        with core.outbox.lock:
            if type(core.outbox.messages) is not Closed:
                core.outbox.messages = OneNodeGroup(self, core.node)

    def _leave(self) -> None:
        if self._around is None:
            self._cluster.gate.block = None

    @ends_block
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with SHIELD:
            SHIELD.let_go(self)
            self._undo.pop_all().__exit__(kind, error, traceback)
