"""SHARE messages of clients in other processes: blocks, the sessions that get them, and when they are released.

A machine over the fake of CUDA's runtime, and sessions that send it messages as a daemon's clients do.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import (
    CancelledError,
    DeviceMemoryError,
    MetadataError,
    ProtocolError,
    QuotaError,
    TensordError,
)
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.limits import Limits
from tensord.interpreter.wire.messages import Call, Release, Share, Signature, Upload, encode_message
from tensord.streams.cuda.ipc import PAGE
from tensord.vm.machine import VirtualMachine
from tensord.vm.reporting.invariants import violations

from ...behaviours.looking_inside import WAIT
from ...each_case import each_case
from ...streams.fake_cuda.gpu import Gpu
from ...streams.fake_cuda.memory import regions_of
from ...streams.fake_cuda.module import installed

DEVICES: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "reserve": 0}]
NUMBERS = np.arange(512.0)
ONE = ((512,), "float64")


USERS: list[User] = []  # of the test that runs


class User:
    """A process that may have blocks open."""

    def __init__(self, pid: int = 7) -> None:
        self.pid = pid
        self.over = False
        USERS.append(self)

    def is_over(self) -> bool:
        return self.over


class Client:
    """A client in another process, as the machine knows it."""

    def __init__(self, machine: VirtualMachine, user: User | None = None, **limits: int) -> None:
        self.machine = machine
        self.user = user or User()
        self.answers: dict[int, tuple[Any, TensordError | None]] = {}
        with machine.inside():
            self.session = machine.engine.open_session(self.reply, "client", limits=Limits(**limits))
        self.session.gpu.refusal = ""
        self.session.gpu.watch = lambda: self.user
        self.ids = self.requests = 0
        self.send(Signature(1, "add", (), (ONE, "float"), "cuda:0", None))
        self.send(Signature(2, "add", (), (ONE, "float"), "cuda:0", (ONE,)))

    def reply(self, request: int, value: Any, error: TensordError | None) -> None:
        if error is not None:
            error.is_reported = True
        self.answers[request] = (value, error)

    def send(self, *messages: Any) -> None:
        self.machine.submit(self.session, [encode_message(message) for message in messages])

    def new(self) -> int:
        self.ids += 1
        return self.ids

    def upload(self, values: Any = NUMBERS, device: str = "cuda:0") -> int:
        array, id_ = np.array(values, np.float64), self.new()
        self.send(Upload(id_, array.shape, "float64", device, array, 0))
        return id_

    def add(self, id_: int, number: float, *, in_place: bool = False) -> int:
        made = id_ if in_place else self.new()
        self.send(Call(2 if in_place else 1, (id_, number), (made,), 0, 0))
        return made

    def ask(self, id_: int) -> tuple[int, int]:
        """Send a SHARE; its request, and the new id."""
        self.requests += 1
        export = self.new()
        self.send(Share(id_, self.requests, 0, export))
        return self.requests, export

    def answer(self, request: int) -> Any:
        assert self.machine.wait_until(lambda: request in self.answers, WAIT)
        value, error = self.answers[request]
        if error is not None:
            raise error.reraisable()
        return value

    def share(self, id_: int) -> tuple[Any, int]:
        """The block, and the new id."""
        request, export = self.ask(id_)
        return self.answer(request), export

    def release(self, *ids: int) -> None:
        self.send(Release(ids))

    def close(self) -> None:
        self.machine.detach(self.session)


@pytest.fixture(params=range(3))
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    with installed(Gpu(seed=request.param, devices=1, memory=1 << 28)) as fake:
        yield fake


@pytest.fixture
def machine(gpu: Gpu) -> Iterator[VirtualMachine]:
    opened = VirtualMachine(DEVICES)
    yield opened
    settle(opened)
    for user in USERS:
        user.over = True
    USERS.clear()
    opened.watch_blocks()
    gc.collect()
    assert opened.wait_until(lambda: not blocks(gpu), WAIT)
    opened.close()


def settle(machine: VirtualMachine) -> None:
    """Wait until all instructions have ended, and check the sums."""
    with machine.locked():
        machine.engine.scheduler.fences.fence_all()
    assert machine.wait_until(lambda: not machine.engine.live, WAIT)
    with machine.locked():
        assert violations(machine.engine) == []


def device(machine: VirtualMachine) -> Any:
    return machine.engine.devices["cuda:0"]


def contents(gpu: Gpu, shared: Any, nbytes: int | None = None) -> Any:
    """A block as another process sees it: all of it, or its first `nbytes`."""
    number, _, size, _, _ = shared
    (block,) = [one for one in blocks(gpu) if one.size == size and one.fd == fd_of(shared)]
    assert number > 0
    return np.array(block.block[:nbytes])


def fd_of(shared: Any) -> int:
    """The memory file that the fake's handle names."""
    return int.from_bytes(shared[1][16:24], "little")


def blocks(gpu: Gpu) -> list[Any]:
    """The blocks that have a handle."""
    return [one for one in regions_of(gpu).owners() if getattr(one, "fd", -1) >= 0]


def value_in(gpu: Gpu, shared: Any) -> Any:
    return contents(gpu, shared, NUMBERS.nbytes).view("float64")


def test_the_answer_is_a_block_that_has_the_value_and_zeros(gpu: Gpu, machine: VirtualMachine) -> None:
    client = Client(machine)
    shared, _ = client.share(client.upload())
    assert shared[2:] == (PAGE, "float64", (512,))
    assert len(shared[1]) == 64
    assert (value_in(gpu, shared) == NUMBERS).all()
    assert not contents(gpu, shared)[NUMBERS.nbytes :].any()
    client.close()


def test_the_same_value_is_in_one_block_until_it_is_written_to(gpu: Gpu, machine: VirtualMachine) -> None:
    client = Client(machine)
    x = client.upload()
    (first, a), (again, b) = client.share(x), client.share(x)
    assert first == again
    client.release(a)
    third, c = client.share(x)
    assert third == first
    client.add(x, 1.0, in_place=True)
    other, _ = client.share(x)
    assert other[0] != first[0]
    assert (value_in(gpu, other) == NUMBERS + 1).all()
    assert (value_in(gpu, first) == NUMBERS).all()
    client.release(b, c)
    assert machine.wait_until(lambda: len(blocks(gpu)) == 1, WAIT)
    assert client.share(x)[0] == other
    client.close()


def test_another_session_has_a_block_of_its_own(gpu: Gpu, machine: VirtualMachine) -> None:
    mine, theirs = Client(machine), Client(machine, User(8))
    shared, _ = mine.share(mine.upload())
    other, _ = theirs.share(theirs.upload())
    assert shared[0] != other[0]
    for id_ in (1, 2**40):
        with pytest.raises(ProtocolError, match="never defined"):
            Client(machine).share(id_)
    mine.close()
    theirs.close()
    assert len(blocks(gpu)) == 2


def test_a_write_to_a_block_changes_no_tensor(gpu: Gpu, machine: VirtualMachine) -> None:
    client = Client(machine)
    x = client.upload()
    shared, _ = client.share(x)
    (block,) = blocks(gpu)
    block.block.fill(0xFF)
    y = client.add(x, 0.0)
    found, _ = client.share(y)
    assert (value_in(gpu, found) == NUMBERS).all()
    assert found[0] != shared[0]
    client.close()


@each_case("what", ["cpu:0", "old id"])
def test_what_cannot_be_shared_is_refused_and_the_export_fails_with_that(machine: VirtualMachine, what: str) -> None:
    client = Client(machine)
    x = client.upload(device="cpu:0" if what == "cpu:0" else "cuda:0")
    if what == "old id":
        client.send(Share(x, 50, 0, x))
        with pytest.raises(ProtocolError, match="is not new"):
            client.answer(50)
    else:
        request, export = client.ask(x)
        with pytest.raises(MetadataError, match=r"whose memory is not a GPU's; numpy\(\) gives a copy"):
            client.answer(request)
        assert export in client.session.tensors
    client.close()


def test_a_client_that_may_not_have_memory_is_told_why(machine: VirtualMachine) -> None:
    client = Client(machine)
    x = client.upload()
    client.session.gpu.refusal = "which is in no process of the same user on the same machine"
    with pytest.raises(MetadataError, match=r"no memory of cuda:0, which is in no process of .*; numpy\(\) gives"):
        client.share(x)
    client.session.gpu.refusal, client.session.gpu.watch = "", None
    with pytest.raises(MetadataError, match="the end of the client's process could not be noticed"):
        client.share(x)
    client.close()


def test_a_block_counts_against_the_sessions_quota_and_so_does_what_its_process_left_open(
    gpu: Gpu, machine: VirtualMachine
) -> None:
    user = User()
    client = Client(machine, user, bytes=3 * PAGE // 2)
    x = client.upload()
    client.share(x)
    y = client.add(x, 1.0)
    with pytest.raises(QuotaError, match="exceed the session's quota"):
        client.share(y)
    client.close()
    again = Client(machine, user, bytes=3 * PAGE // 2)
    z = again.upload()
    with pytest.raises(QuotaError):
        again.share(z)
    other = Client(machine, User(8), bytes=3 * PAGE // 2)
    other.share(other.upload())
    user.over = True
    shared, _ = again.share(z)
    assert (value_in(gpu, shared) == NUMBERS).all()
    again.close()
    other.close()


def test_blocks_of_an_ended_session_are_kept_and_counted_until_their_process_has_ended(
    gpu: Gpu, machine: VirtualMachine
) -> None:
    client = Client(machine)
    shared, _ = client.share(client.upload())
    client.close()
    settle(machine)
    assert device(machine).backend.allocated == PAGE
    assert (value_in(gpu, shared) == NUMBERS).all()
    with machine.locked():
        machine.engine.free_unused_blocks()
    assert device(machine).backend.allocated == PAGE
    client.user.over = True
    machine.watch_blocks()
    assert device(machine).backend.allocated == 0
    gc.collect()
    assert machine.wait_until(lambda: not blocks(gpu), WAIT)


def test_without_memory_the_client_is_told_and_others_go_on(gpu: Gpu, machine: VirtualMachine) -> None:
    client = Client(machine)
    x = client.upload()
    gpu.free[0] = 0  # another process has the memory
    with pytest.raises(DeviceMemoryError, match=r"the GPU has no block of .* bytes left; numpy\(\) gives a copy"):
        client.share(x)
    gpu.free[0] = 1 << 27
    with pytest.raises(DeviceMemoryError, match=r"does not fit on cuda:0 now; numpy\(\) gives a copy"):
        share_many(client, x)
    client.close()


def share_many(client: Client, id_: int) -> None:
    """Share more values than fit in memory."""
    for n in range(40):
        client.share(client.add(id_, float(n)))


def hold(gpu: Gpu, machine: VirtualMachine) -> None:
    gpu.enqueue(device(machine).compute[0].raw.queue, lambda: None, gpu.hold("compute"))


def test_the_block_of_an_export_that_is_released_before_its_value_is_there_is_free_when_the_copy_has_ended(
    gpu: Gpu, machine: VirtualMachine
) -> None:
    client = Client(machine)
    x = client.upload()
    client.share(x)
    hold(gpu, machine)
    y = client.add(x, 1.0)
    request, export = client.ask(y)
    client.release(export)
    assert len(blocks(gpu)) == 2
    gpu.release("compute")
    with suppress(ProtocolError):  # unless the copy was launched before
        client.answer(request)
    settle(machine)
    assert machine.wait_until(lambda: len(blocks(gpu)) == 1, WAIT)
    client.close()


def test_a_cancelled_share_leaves_no_block(gpu: Gpu, machine: VirtualMachine) -> None:
    client = Client(machine)
    x = client.upload()
    hold(gpu, machine)
    y = client.add(x, 1.0)
    request, export = client.ask(y)
    with machine.inside():
        machine.engine.cancel(client.session)
    gpu.release("compute")
    with pytest.raises(CancelledError):
        client.answer(request)
    client.release(export)
    settle(machine)
    gc.collect()
    assert machine.wait_until(lambda: not blocks(gpu), WAIT)
    client.close()


@pytest.mark.parametrize("seed", range(4))
def test_in_random_programs_each_block_keeps_its_value(gpu: Gpu, machine: VirtualMachine, seed: int) -> None:
    rng = random.Random(seed)
    client = Client(machine)
    known = {client.upload(NUMBERS * n): NUMBERS * n for n in range(3)}
    lent: dict[int, tuple[Any, Any]] = {}
    asked: dict[int, tuple[int, Any]] = {}
    for _ in range(120):
        id_ = rng.choice(list(known))
        what = rng.random()
        if what < 0.3:
            known[client.add(id_, 1.0)] = known[id_] + 1
        elif what < 0.55:
            client.add(id_, 2.0, in_place=True)
            known[id_] = known[id_] + 2
        elif what < 0.85:
            request, export = client.ask(id_)
            asked[request] = (export, known[id_])
        elif len(known) > 3:
            client.release(id_)
            del known[id_]
        if len(asked) > 3 or rng.random() < 0.1:
            for request, (export, value) in asked.items():
                lent[export] = (client.answer(request), value)
            asked.clear()
        while len(lent) > 8:
            client.release(gone := rng.choice(list(lent)))
            del lent[gone]
        for shared, value in lent.values():
            assert (value_in(gpu, shared) == value).all()
    for request in asked:
        client.answer(request)
    client.user.over = True
    client.close()


def test_a_block_is_whole_pages_of_the_driver() -> None:
    assert Meta.of((1,), "float64").nbytes < PAGE == 2 << 20
