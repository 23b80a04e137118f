"""`cupy.cuda.nccl`: collectives that really compute, once all ranks are ready, each in the order of its stream.

A kernel of NCCL occupies its stream until the kernels of all other ranks have begun. So an item of a launch is ready
when the same launch of each other rank is at the head of its stream, too. Where two launches are in different orders
on two streams, neither is ever ready, and their waiters get the fake's AssertionError about a wait that cannot end.

A group in which communicators are made ends when all of their ranks have joined, on any threads; `dissolve` ends
the group with an error, as the end of the processes of missing ranks does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from .gpu import PATIENCE, Gpu, Queue
from .memory import regions_of

DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
MERGES = (np.add, np.multiply, np.maximum, np.minimum)


class NcclError(RuntimeError):
    """CuPy's."""


class Called(NamedTuple):
    """A call as a rank has made it. `sizes`: elements that it reads and writes; `peer`: the root, or the other rank."""

    name: str
    source: int
    target: int
    sizes: tuple[int, int]
    dtype: int
    merge: int = 0
    peer: int = 0


class Launched:
    """The simultaneous launch of one rank: an item of its stream."""

    def __init__(self, clique: Clique, rank: int, number: int, queue: Queue, calls: list[Called]) -> None:
        self.clique, self.rank, self.number, self.queue, self.calls = clique, rank, number, queue, calls

    def ready(self) -> bool:
        return self.clique.is_ready(self)

    def __call__(self) -> None:
        self.clique.carry_out(self)


class Clique:
    """All ranks of a communicator. `failure`: an error that NCCL notices by itself."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.gpu, self.size = gpu, size
        self.devices: dict[int, int] = {}
        self.launches: dict[int, dict[int, Launched]] = {}  # by number, then by rank
        self.computed: set[int] = set()
        self.gone: set[int] = set()  # ranks that have aborted
        self.ended: set[int] = set()  # ranks that were destroyed
        self.failure: str = ""
        self.dissolved = False

    def is_ready(self, one: Launched) -> bool:
        if one.rank in self.gone or one.number in self.computed:
            return True
        ranks = self.launches[one.number]
        return len(ranks) == self.size and all(
            each.queue.items and each.queue.items[0].run is each for each in ranks.values()
        )

    def lacks_peer(self) -> bool:
        """Whether a rank waits in vain: another one was aborted, has not come, or has a broken GPU."""
        broken = any(self.gpu.broken[device] is not None for device in self.devices.values())
        waits = len(self.launches) > len(self.computed) and len(self.ended) < self.size
        return waits and (broken or bool(self.gone) or any(len(ranks) < self.size for ranks in self.launches.values()))

    def carry_out(self, one: Launched) -> None:
        if one.rank in self.gone or one.number in self.computed:
            return
        self.computed.add(one.number)
        ranks = self.launches[one.number]
        lists = [list(ranks[rank].calls) for rank in range(self.size)]
        collective = [[call for call in calls if call.name not in {"send", "recv"}] for calls in lists]
        for calls in zip(*collective, strict=True):
            self.compute(calls)
        for rank, own in enumerate(lists):
            for call in own:
                if call.name == "send":
                    self.deliver(rank, call, lists[call.peer])

    def deliver(self, rank: int, sent: Called, theirs: list[Called]) -> None:
        """A send to the first recv of the other rank that is for it."""
        taken = next(call for call in theirs if call.name == "recv" and call.peer == rank)
        theirs.remove(taken)
        self.array(sent.peer, taken.target, taken.sizes[1], taken.dtype)[:] = self.array(
            rank, sent.source, sent.sizes[0], sent.dtype
        )

    def compute(self, calls: Sequence[Called]) -> None:
        """Compute one call of all ranks."""
        kinds = {(call.name, call.dtype, call.merge, call.sizes[1]) for call in calls if call.name != "reduce"}
        assert len(kinds) < 2, f"the ranks call different things: {kinds}"
        first = calls[0]
        read = [self.array(n, call.source, call.sizes[0], call.dtype).copy() for n, call in enumerate(calls)]
        for rank, call in enumerate(calls):
            if first.name in {"all_reduce", "reduce", "reduce_scatter"}:
                found = read[0]
                for other in read[1:]:
                    found = MERGES[call.merge](found, other)
                if first.name == "reduce_scatter":
                    found = np.split(found, self.size)[rank]
            else:
                found = np.concatenate(read) if first.name == "all_gather" else read[call.peer]
            if call.sizes[1]:
                self.array(rank, call.target, call.sizes[1], call.dtype)[:] = found

    def array(self, rank: int, address: int, count: int, dtype: int) -> Any:
        """Memory of a rank's GPU."""
        kind = np.dtype(DTYPES[dtype])
        if not count:
            return np.empty(0, kind)
        block = regions_of(self.gpu).find(address, count * kind.itemsize)
        assert block is not None, "memory of nobody"
        assert block.device_id == self.devices[rank], "memory of another device"
        begin = address - block.ptr
        return block.block[begin : begin + count * kind.itemsize].view(kind)


class Nccl:
    """The module. `communicators`: the live ones; `made`: the number of cliques made so far."""

    NcclError = NcclError
    available = True
    NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = 0, 1, 2, 3
    NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = 0, 1, 2, 3, 4, 5
    NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64 = 6, 7, 8

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._waiting = 0  # threads that wait for ranks to come
        self._numbers = itertools.count(1)
        self._cliques: dict[bytes, Clique] = {}
        gpu.lacks_peer = lambda: any(clique.lacks_peer() for clique in self._cliques.values())
        self.NcclCommunicator: Any = type("NcclCommunicator", (Communicator,), {"nccl": self})

    def get_version(self) -> int:
        return 22707

    def get_unique_id(self) -> bytes:
        return next(self._numbers).to_bytes(128, "big")

    def groupStart(self) -> None:  # noqa: N802 - CuPy's names
        self._gpu.threads.grouped, self._gpu.threads.joined = [], []

    def groupEnd(self) -> None:  # noqa: N802
        grouped: list[tuple[Communicator, Called, int]] = self._gpu.threads.__dict__.pop("grouped")
        for clique in self._gpu.threads.__dict__.pop("joined"):
            self._await(clique)
        together: dict[tuple[Communicator, int], list[Called]] = {}
        for communicator, called, stream in grouped:
            together.setdefault((communicator, stream), []).append(called)
        with self._gpu.changed:  # all ranks of this thread at once
            for (communicator, stream), calls in together.items():
                communicator.enqueue(stream, calls)

    def clique_of(self, unique_id: bytes, size: int) -> Clique:
        return self._cliques.setdefault(unique_id, Clique(self._gpu, size))

    def _await(self, clique: Clique) -> None:
        """Wait until all ranks have come."""
        with self._gpu.changed:
            self._waiting += 1
            self._gpu.changed.notify_all()
            while len(clique.devices) < clique.size and not clique.dissolved:
                assert self._gpu.changed.wait(PATIENCE), "ranks never come, and the test does not dissolve the clique"
            self._waiting -= 1
            if clique.dissolved:
                clique.ended.update(range(clique.size))
                raise NcclError("NCCL_ERROR_REMOTE_ERROR: a rank has gone")

    def dissolve(self) -> None:
        """The processes of ranks that have not come end."""
        with self._gpu.changed:
            for clique in self._cliques.values():
                clique.dissolved = len(clique.devices) < clique.size
            self._gpu.changed.notify_all()

    @property
    def _alive(self) -> list[Clique]:
        """The cliques with a rank that has not ended."""
        return [one for one in self._cliques.values() if len(one.ended) < one.size]


class Communicator:
    """`NcclCommunicator`: one rank. It is made in a group, as NCCL requires for several ranks of one thread."""

    nccl: Nccl

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:  # noqa: N803
        gpu = self.nccl._gpu
        assert hasattr(gpu.threads, "grouped"), "the rank would wait for those that this thread makes later"
        self._clique, self._rank, self._count = self.nccl.clique_of(commId, ndev), rank, 0
        if gpu.device in self._clique.devices.values():
            raise NcclError("NCCL_ERROR_INVALID_USAGE: a GPU twice")
        with gpu.changed:
            assert 0 <= rank < ndev == self._clique.size
            self._clique.devices[rank] = gpu.device
            gpu.changed.notify_all()
        gpu.threads.joined.append(self._clique)

    def enqueue(self, stream: int, calls: list[Called]) -> None:
        clique, queue = self._clique, self.nccl._gpu.queues[stream]
        assert queue.device == clique.devices[self._rank], "the stream of another device"
        self._count += 1
        launched = Launched(clique, self._rank, self._count, queue, calls)
        clique.launches.setdefault(self._count, {})[self._rank] = launched
        self.nccl._gpu.enqueue(queue, launched, launched.ready)

    def _call(self, stream: int, called: Called) -> None:
        if self._rank in self._clique.ended:
            raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: invalid argument")
        self.nccl._gpu.threads.grouped.append((self, called, stream))

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        self._call(stream, Called("all_reduce", sendbuf, recvbuf, (count, count), datatype, op))

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:  # noqa: N802
        self._call(stream, Called("all_gather", sendbuf, recvbuf, (count, count * self._clique.size), datatype))

    def reduceScatter(  # noqa: N802
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        sizes = (recvcount * self._clique.size, recvcount)
        self._call(stream, Called("reduce_scatter", sendbuf, recvbuf, sizes, datatype, op))

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        sizes = (count, count if self._rank == root else 0)
        self._call(stream, Called("reduce", sendbuf, recvbuf, sizes, datatype, op, root))

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        sizes = (count if self._rank == root else 0, count)
        self._call(stream, Called("broadcast", sendbuff, recvbuff, sizes, datatype, 0, root))

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._call(stream, Called("send", sendbuf, 0, (count, 0), datatype, 0, peer))

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._call(stream, Called("recv", 0, recvbuf, (0, count), datatype, 0, peer))

    def check_async_error(self) -> None:
        if self._clique.failure:
            raise NcclError(self._clique.failure)

    def abort(self) -> None:
        with self.nccl._gpu.changed:
            self._clique.gone.add(self._rank)
            self._clique.ended.add(self._rank)
            self.nccl._gpu.changed.notify_all()

    def destroy(self) -> None:
        running = [one for ranks in self._clique.launches.values() for one in ranks.values() if one.rank == self._rank]
        assert all(one.number in self._clique.computed for one in running), "destroyed while it is in use"
        self._clique.ended.add(self._rank)


def missing() -> Any:
    """The module without NCCL."""
    return SimpleNamespace(available=False)
