"""The memory of kernels' temporaries: reserved at dispatch, given back once the kernel has run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import DeviceMemoryError
from tensord.interpreter.schema.opdef import REGISTRY, UNCOUNTED_BYTES, OpDef, register
from tensord.interpreter.types.meta import Meta
from tensord.streams.pool import PooledDevice
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.reporting.invariants import violations

from ..bare_engine import Bare, Client

COUNT = UNCOUNTED_BYTES // 8  # float64 elements of a tensor here
SIZE = 8 * COUNT
META = ((COUNT,), "float64")
SCRATCH = 2 * SIZE


def twice(_xp: Any, inputs: Any, outputs: Any, attributes: Any) -> Any:
    if attributes.get("room"):
        return (inputs[0] * 2,)
    outputs[0][...] = inputs[0] * 2
    return None


def boom(*_: Any) -> None:
    raise ValueError("boom")


def same(metas: Any, _attributes: Any) -> tuple[Meta]:
    return (metas[0],)


def scratch(_metas: Any, _outputs: Any, _attributes: Any) -> int:
    return SCRATCH


OPS = (
    OpDef("hungry", 1, same, "Twice x.", kernel=twice, elementwise=True, scratch=scratch),
    OpDef("hungry_boom", 1, same, "Fails.", kernel=boom, scratch=scratch),
    OpDef(
        "hungry_dynamic",
        1,
        lambda _metas, _attributes: (None,),
        "Twice x, of a size that data decide.",
        kernel=twice,
        dynamic=True,
        scratch=scratch,
        max_bytes=lambda metas: metas[0].nbytes if isinstance(metas[0], Meta) else 0,
    ),
)


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    for op in OPS:
        register(op)
    yield
    for op in OPS:
        del REGISTRY[op.name]


@pytest.fixture
def bare() -> Bare:
    return Bare(inline=False, workers=2)


@pytest.fixture
def client(bare: Bare) -> Client:
    return bare.client()


def hungry(client: Client, x: int, op: str = "hungry", out: int = 0) -> tuple[int, Instruction]:
    result = client.call(op, x, meta=META, out=out)
    return result, list(client.bare.engine.live.values())[-1]


def room(bare: Bare, nbytes: int) -> None:
    """Limit the free memory to `nbytes`."""
    bare.device.limit = bare.device.allocated + nbytes


def test_it_is_counted_from_dispatch_until_the_kernel_has_run(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    result, instruction = hungry(client, x)
    assert (instruction.status, instruction.scratch) == (Status.DISPATCHED, SCRATCH)
    assert bare.device.allocated == 2 * SIZE + SCRATCH
    assert violations(bare.engine) == []
    bare.drain()
    assert (instruction.scratch, bare.device.allocated) == (0, 2 * SIZE)
    assert client.fetch(result)[:2] == [2.0, 2.0]


def test_an_op_with_temporaries_that_count_does_not_pass_the_ledger_inline() -> None:
    bare = Bare(inline=True)
    client = bare.client()
    x = client.upload(np.ones(COUNT))
    room(bare, SIZE + SCRATCH)
    assert client.fetch(client.call("hungry", x, meta=META))[:1] == [2.0]
    room(bare, SIZE + SCRATCH - 1)
    what = rf"\({SIZE} bytes\) and .*\({SCRATCH} bytes\) of temporaries do not fit"
    with pytest.raises(DeviceMemoryError, match=what):
        client.fetch(client.call("hungry", x, meta=META))


def test_two_that_do_not_fit_side_by_side_run_one_after_the_other(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    room(bare, 2 * SIZE + SCRATCH)
    (_, first), (_, second) = hungry(client, x), hungry(client, x)
    assert (first.status, second.status) == (Status.DISPATCHED, Status.READY)
    bare.drain()
    assert (first.status, second.status) == (Status.DONE, Status.DONE)


def test_nothing_is_kept_where_the_result_does_not_fit_besides(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    before = bare.device.allocated
    room(bare, SIZE + SCRATCH - 1)
    result = client.call("hungry", x, meta=META)
    assert bare.device.allocated == before
    with pytest.raises(DeviceMemoryError):
        client.fetch(result)


def test_a_write_in_place_needs_its_temporaries_all_the_same(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    room(bare, SCRATCH)
    _, instruction = hungry(client, x, out=x)
    assert instruction.scratch == SCRATCH
    assert client.fetch(x)[:1] == [2.0]
    room(bare, SCRATCH - 1)
    client.call("hungry", x, meta=META, out=x)
    with pytest.raises(DeviceMemoryError, match="0 bytes and"):
        client.fetch(x)


def test_a_forwarded_result_needs_its_temporaries_all_the_same(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    room(bare, SCRATCH)
    result = client.call("hungry", x, meta=META, released=1)
    assert bare.device.allocated == SIZE + SCRATCH
    assert client.fetch(result)[:1] == [2.0]


def test_it_is_given_back_by_a_kernel_that_fails(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    hungry(client, x, "hungry_boom")
    bare.drain()
    assert bare.device.allocated == SIZE
    assert violations(bare.engine) == []


def test_the_result_that_data_decide_stays_spoken_for_while_the_temporaries_are_there(
    bare: Bare, client: Client
) -> None:
    x = client.upload(np.ones(COUNT))
    result, instruction = hungry(client, x, "hungry_dynamic")
    device = bare.engine.devices["cpu:0"]
    assert device.unreserved == {instruction: SIZE}
    assert (device.unreserved_bytes, bare.device.allocated) == (SIZE, SIZE + SCRATCH)
    bare.drain()
    assert (device.unreserved, device.unreserved_bytes) == ({}, 0)
    assert client.fetch(result)[:1] == [2.0]


def test_what_depends_on_a_pending_shape_learns_of_its_temporaries_with_it(bare: Bare, client: Client) -> None:
    x = client.upload(np.ones(COUNT))
    pending = client.call("hungry_dynamic", x, meta=META)
    number = client.signature("hungry", (None,))
    client.send([0, number, (pending,), (client.new(),), 0, 1])
    device = bare.engine.devices["cpu:0"]
    assert device.unknown == 1
    bare.step(next(stream for stream in bare.device.streams if stream.can_execute()))
    assert (device.unknown, bare.device.allocated) == (0, 3 * SIZE + SCRATCH)
    bare.drain()
    assert bare.device.allocated == 3 * SIZE


def test_memory_that_a_pool_keeps_makes_room(bare: Bare) -> None:
    device: PooledDevice = bare.device
    kept = [device.allocate(SIZE) for _ in range(4)]
    for buffer in kept:
        assert buffer is not None
        device.free(buffer)
    assert device.pool.cached == 4 * SIZE
    device.limit = 6 * SIZE
    assert device.set_aside(5 * SIZE)
    assert device.allocated + device.pool.cached <= device.limit
    assert not device.set_aside(2 * SIZE)
    device.give_back(5 * SIZE)
    assert device.allocated == 0
