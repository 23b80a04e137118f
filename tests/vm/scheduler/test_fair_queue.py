"""Fair queues of streams: a session that floods a device delays other sessions by no more than its share."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tensord.interpreter.wire.message_kinds import CALL
from tensord.interpreter.wire.messages import Call, Fetch, Release
from tensord.vm.engine import Engine
from tensord.vm.scheduler import fair_queue
from tensord.vm.scheduler.fair_queue import GUARANTEED_INSTRUCTIONS, QUEUE_DEPTH

from ..bare_engine import ONE, Bare, Client


@pytest.fixture(autouse=True)
def heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is a heavy one."""
    monkeypatch.setattr(fair_queue, "SHARED_WORK", 1)


def flood(client: Client, x: int, count: int) -> list[int]:
    """`count` independent ops."""
    number = client.signature("negative", (ONE,))
    first = client.ids + 1
    client.ids += count
    client.send(*([CALL, number, (x,), (id_,), 0, 1] for id_ in range(first, client.ids + 1)))
    return list(range(first, client.ids + 1))


def queue(bare: Bare, index: int = 0) -> list[Any]:
    """Whose tasks stand on a stream."""
    return [task.author for task in bare.device.compute[index].waiting]


def pair(bare: Bare) -> tuple[Client, Client, int, int]:
    """Two clients that have each used the device, with a tensor each."""
    a, b = bare.client(), bare.client()
    x, y = a.upload([1.0]), b.upload([2.0])
    for client, id_ in ((a, x), (b, y)):
        client.fetch(client.call("negative", id_))
    return a, b, x, y


def test_alone_a_session_fills_the_queue() -> None:
    bare = Bare(inline=False)
    client = bare.client()
    made = flood(client, client.upload([1.0]), QUEUE_DEPTH + 100)
    assert len(queue(bare)) == QUEUE_DEPTH
    assert len(bare.engine.scheduler.dispatcher.backlog[bare.device.compute[0]]) == 100
    assert client.fetch(made[-1]) == [-1.0]
    assert not bare.engine.scheduler.dispatcher.backlog


def test_alone_a_session_queues_no_more_than_some_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "EXCLUSIVE_WORK", 30)
    bare = Bare(inline=False)
    client = bare.client()
    made = flood(client, client.upload([1.0]), 100)
    assert len(queue(bare)) == 30  # each of work 1
    assert client.fetch(made[-1]) == [-1.0]


def test_an_op_of_another_session_waits_behind_few() -> None:
    bare = Bare(inline=False)
    a, b, x, y = pair(bare)
    made = flood(a, x, 200)
    assert queue(bare) == [a.session] * GUARANTEED_INSTRUCTIONS
    result = b.call("negative", y)
    assert queue(bare) == [a.session] * GUARANTEED_INSTRUCTIONS + [b.session]
    (stream,) = bare.device.compute
    assert [bare.step(stream) for _ in range(GUARANTEED_INSTRUCTIONS + 1)] == [a.session] * GUARANTEED_INSTRUCTIONS + [
        b.session
    ]
    assert b.fetch(result) == [-2.0]
    assert a.fetch(made[-1]) == [-1.0]


def test_two_floods_take_turns() -> None:
    bare = Bare(inline=False)
    a, b, x, y = pair(bare)
    flood(a, x, 50)
    flood(b, y, 50)
    (stream,) = bare.device.compute
    order = [bare.step(stream) for _ in range(80)]
    for start in range(0, 80, 2 * GUARANTEED_INSTRUCTIONS):
        assert order[start : start + 2 * GUARANTEED_INSTRUCTIONS].count(a.session) == GUARANTEED_INSTRUCTIONS
    bare.drain()
    assert not bare.engine.live


def test_small_kernels_are_queued_by_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "SHARED_WORK", 30)
    bare = Bare(inline=False)
    a, _, x, _ = pair(bare)
    flood(a, x, 100)
    assert len(queue(bare)) == 30  # each of work 1


def test_a_chain_goes_as_a_batch() -> None:
    bare = Bare(inline=False)
    a, _, x, _ = pair(bare)
    number = a.signature("negative", (ONE,), (), (ONE,))
    a.send(*([CALL, number, (x,), (x,), 0, 1] for _ in range(11)))
    assert queue(bare) == [a.session] * GUARANTEED_INSTRUCTIONS
    (stream,) = bare.device.compute
    for _ in range(GUARANTEED_INSTRUCTIONS):
        stream.execute()
    stream.report(GUARANTEED_INSTRUCTIONS)
    bare.schedule()
    assert queue(bare) == [a.session] * GUARANTEED_INSTRUCTIONS
    assert a.fetch(x) == [-1.0]


def test_a_session_alone_again_gets_the_whole_queue() -> None:
    bare = Bare(inline=False)
    a, b, x, _ = pair(bare)
    flood(a, x, 100)
    bare.engine.close(b.session)
    bare.step(bare.device.compute[0])
    assert len(queue(bare)) == 99
    assert list(bare.engine.devices["cpu:0"].users) == [a.session]
    bare.drain()


@pytest.mark.parametrize("how", [Engine.cancel, Engine.close])
def test_what_waits_for_its_turn_is_cancelled_with_the_rest(how: Any) -> None:
    bare = Bare(inline=False)
    a, b, x, y = pair(bare)
    flood(a, x, 100)
    result = b.call("negative", y)
    how(bare.engine, a.session)
    assert b.fetch(result) == [-2.0]
    bare.drain()
    assert not bare.engine.live
    assert not bare.engine.scheduler.dispatcher.backlog


def test_a_lost_device_leaves_nothing_in_the_backlog() -> None:
    bare = Bare(inline=False)
    a, b, x, y = pair(bare)
    flood(a, x, 100)
    flood(b, y, 100)
    bare.device.lost = RuntimeError("gone")
    bare.drain()
    assert not bare.engine.live
    assert not bare.engine.scheduler.dispatcher.backlog


def test_who_waits_for_memory_keeps_nobody_else_in_the_backlog() -> None:
    """An instruction that finds no memory gives its turn to the next one, and follows once there is memory."""
    bare = Bare(inline=False)
    a, b, x, y = pair(bare)
    bare.device.limit = bare.device.allocated + 6 * 8
    made = flood(a, x, 12)
    result = b.call("negative", y)
    rng = random.Random(1)
    waiting = list(made)
    while waiting:  # released in any order: so each finds memory in the end
        bare.drain()
        gone = [waiting.pop(rng.randrange(len(waiting))) for _ in range(min(3, len(waiting)))]
        a.send(Release(tuple(gone)))
    bare.drain()
    b.send(Fetch(result, 7, 0, 0))
    bare.drain()
    assert 7 in b.answers
    assert not bare.engine.live
    assert not bare.engine.scheduler.dispatcher.backlog


def test_independent_ops_spread_over_the_streams_also_where_they_wait() -> None:
    bare = Bare(workers=2, inline=False)
    a, _, x, _ = pair(bare)
    flood(a, x, 100)
    backlog = bare.engine.scheduler.dispatcher.backlog
    sizes = [len(queue(bare, n)) + len(backlog[bare.device.compute[n]]) for n in range(2)]
    assert sizes == [50, 50]
    bare.drain()


def test_an_idle_stream_is_taken_before_one_that_another_session_uses() -> None:
    bare = Bare(workers=2, inline=False)
    a, b, x, y = pair(bare)
    number = a.signature("negative", (ONE,), (), (ONE,))
    a.send(*([CALL, number, (x,), (x,), 0, 1] for _ in range(20)))  # a chain: one stream
    b.call("negative", y)
    assert [set(queue(bare, n)) for n in range(2)] == [{a.session}, {b.session}]
    bare.drain()


# -- small ops beside busy streams -------------------------------------------------------------------------------------


def test_a_small_op_runs_at_once_although_every_stream_is_busy() -> None:
    bare = Bare(workers=2, inline_work=100)
    a, b = bare.client(), bare.client()
    x, y = a.upload([1.0] * 1000), b.upload([2.0])
    number = a.signature("negative", (((1000,), "float64"),))
    a.ids += 50
    a.send(*([CALL, number, (x,), (id_,), 0, 1] for id_ in range(2, 52)))
    assert len(queue(bare)) + len(queue(bare, 1)) == 50
    result = b.call("negative", y)
    b.send(Fetch(result, 1, 0, 0))
    assert b.answers[1][0].tolist() == [-2.0]
    assert len(queue(bare)) + len(queue(bare, 1)) == 50
    bare.drain()


def test_a_small_op_runs_at_once_beside_instructions_that_have_no_memory_yet() -> None:
    bare = Bare(inline_work=100)
    a, b = bare.client(), bare.client()
    big = ((1000,), "float64")
    x, y = a.upload([1.0] * 1000), b.upload([2.0])
    for client in (a, b):
        made = client.call("negative", client.upload([1.0] * 1000), meta=big)
        client.release(made)
    number = a.signature("negative", (big,))
    a.send(*([CALL, number, (x,), (a.new(),), 0, 1] for _ in range(50)))
    assert bare.engine.scheduler.dispatcher.backlog
    assert bare.engine.devices["cpu:0"].unreserved
    result = b.call("negative", y)
    b.send(Fetch(result, 77, 0, 0))
    assert b.answers[77][0].tolist() == [-2.0]
    bare.device.limit = bare.device.allocated + 8000  # no memory is left beside their needs
    more = b.call("negative", y)
    b.send(Fetch(more, 78, 0, 0))
    assert 78 not in b.answers
    bare.device.limit = 1 << 24
    bare.drain()
    assert b.answers[78][0].tolist() == [-2.0]


def test_what_overtakes_a_busy_stream_takes_no_memory_that_is_free_only_in_its_order() -> None:
    bare = Bare(inline_work=100)
    client = bare.client()
    big, two, scalar = ((1000,), "float64"), ((2,), "float64"), ((), "float64")
    busy = client.call("negative", client.upload([1.0] * 1000), meta=big)
    x, y = client.upload([1.0, 2.0]), client.upload([3.0, 4.0])
    total, reader = client.signature("sum", (big,)), client.signature("add", (two, scalar))
    client.send(Call(total, (busy,), (client.new(),), 0, 1))
    client.send(Call(reader, (x, client.ids), (client.new(),), 0, 1))
    read = client.ids
    client.send(Release((x,)))  # its reader is queued: the memory is reusable on that stream, behind the reader
    device = bare.engine.devices["cpu:0"]
    assert device.reusable
    number = client.signature("setitem", (two, "float"), (("index", (0,)),))
    client.send(Call(number, (y, 9.0), (client.new(),), 0, 1))  # too much for `immediate`; but it runs inline
    client.send(Fetch(client.ids, 5, 0, 0))
    assert client.answers[5][0].tolist() == [9.0, 4.0]
    assert device.reusable
    assert client.fetch(read) == [-999.0, -998.0]
