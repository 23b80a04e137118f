"""Cancelling and closing a session: the cost for other sessions, the spared instructions, and those that still run."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import CancelledError, DeviceMemoryError
from tensord.interpreter.wire.limits import Limits
from tensord.interpreter.wire.messages import Call, Chain, Effect, Lookup, Publish, Unpublish, Wait
from tensord.streams.device import Eviction
from tensord.vm.admission.cancellation import HANDLES_PER_STEP, held_alone, written_now
from tensord.vm.memory.making_room import gather
from tensord.vm.model.session import Cause
from tensord.vm.reporting.invariants import violations
from tensord.vm.tracing.flat import SourceLocation

from ...each_case import each_case
from ..bare_engine import ONE, Bare, Client, array_of
from ..parts import Parts, copy_of


@pytest.fixture
def bare() -> Bare:
    return Bare(inline=False)


class Counted(dict[int, Any]):
    """A session's tensors that counts how many of them are visited."""

    visited = 0

    def values(self) -> Any:
        for value in super().values():
            Counted.visited += 1
            yield value


@pytest.fixture
def crowd(bare: Bare) -> Client:
    """A session with a hundred tensors, which records the tensors that are visited."""
    client = bare.client()
    for n in range(100):
        client.upload([n])
    bare.drain()
    client.session.tensors = Counted(client.session.tensors)
    Counted.visited = 0
    return client


@pytest.mark.parametrize("what", ["cancel", "close"])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("live", [False, True])
def test_no_tensor_of_another_session_is_visited(
    bare: Bare, crowd: Client, what: str, shares: bool, live: bool
) -> None:
    client = bare.client()
    x = client.upload([1.0])
    bare.drain()
    if shares:
        client.publish("x", ids=[x])
    if live:
        client.call("negative", x)
        assert client.session.live
    getattr(bare.engine, what)(client.session)
    assert Counted.visited == 0
    bare.drain()
    assert not violations(bare.engine)
    crowd.session.tensors = dict(crowd.session.tensors)


def test_of_a_session_that_shares_nothing_only_live_instructions_are_visited(bare: Bare, crowd: Client) -> None:
    result = crowd.call("negative", 1)
    bare.engine.cancel(crowd.session)
    assert Counted.visited == 0
    bare.drain()
    with pytest.raises(CancelledError):
        crowd.ask(Wait((result,), 0, 1))


def test_of_a_session_that_shares_what_is_not_written_is_not_counted(bare: Bare, crowd: Client) -> None:
    """Its other tensors keep no other session waiting."""
    crowd.publish("x", ids=[7])
    crowd.call("negative", 1)
    written = written_now(bare.engine.live.values())
    assert written is not None
    assert len(held_alone(crowd.session, written)) == len(written) == 1
    assert len(held_alone(crowd.session, None)) == 100  # all but the published one, and the result
    bare.engine.cancel(crowd.session)
    bare.drain()
    assert not violations(bare.engine)


def share(client: Client, other: Client, x: int, holder: str) -> None:
    """Have `holder` hold the tensor, beside its own session."""
    client.send(Publish(("x",), (x,), 0))
    if holder in {"a handle", "a snapshot"}:
        other.send(Lookup(("x",), (other.new(),), 0, holder == "a snapshot"))
    if holder != "a name":
        client.send(Unpublish(("x",), 0))


@pytest.mark.parametrize("holder", ["a name", "a handle", "a snapshot", "nobody any more"])
def test_a_pending_write_is_spared_if_others_hold_what_it_writes(bare: Bare, holder: str) -> None:
    client, other = bare.client(), bare.client()
    x = client.upload([1.0])
    bare.drain()
    client.call("negative", x, out=x)
    share(client, other, x, holder)
    bare.engine.cancel(client.session)
    spared = [i for i in client.session.live.values() if i.label == "negative" and i.error is None]
    assert bool(spared) == (holder != "nobody any more")
    bare.drain()
    assert not violations(bare.engine)


def test_a_write_is_spared_if_a_view_has_kept_what_it_wrote(bare: Bare) -> None:
    """The tensor itself was overwritten since, and has other memory: only the snapshot holds the first value."""
    client, other = bare.client(), bare.client()
    x = client.upload([1.0])
    bare.drain()
    client.call("negative", x, out=x)
    share(client, other, x, "a snapshot")
    client.call("square", x, out=x)
    bare.engine.cancel(client.session)
    errors = {i.label: i.error for i in client.session.live.values() if i.label in {"negative", "square"}}
    assert errors["negative"] is None
    assert isinstance(errors["square"], CancelledError)
    assert other.fetch(other.ids) == [-1.0]


@pytest.mark.parametrize("apart", [False, True])
def test_a_callback_begins_a_cancellation_and_no_effect_behind_it_runs(bare: Bare, apart: bool) -> None:
    """Effects that are admitted already, and effects that come in the same pass."""
    client = bare.client()
    x = client.upload([1.0])
    bare.drain()
    seen: list[str] = []

    def cancel(_: Any) -> None:
        seen.append("first")
        bare.engine.begin_cancel(client.session)

    y = client.call("negative", x) if apart else x
    chain = client.new()
    client.send(Chain(chain), Effect((y,), chain, cancel, 0, 1), Effect((x,), chain, seen.append, 90, 1))
    bare.drain()
    bare.engine.finish_cancel(client.session)
    assert seen == ["first"]
    assert isinstance(client.answers[90][1], CancelledError)
    assert client.answers[90][1].location == "user.py:1"
    assert not bare.errors
    assert not client.session.live


def test_what_a_large_session_held_is_released_in_pieces(bare: Bare) -> None:
    """Each piece has a pass of its own, so that a daemon can serve others in between. All sums are right meanwhile."""
    client, other = bare.client(), bare.client()
    for n in range(HANDLES_PER_STEP * 3 + 10):
        client.upload([n])
    shared = client.ids
    share(client, other, shared, "a handle")
    bare.drain()
    bare.engine.close(client.session)
    left = []
    while bare.engine.directory.leaving:
        left.append(len(bare.engine.directory.leaving[0].tensors))
        assert not violations(bare.engine)
        assert bare.engine.schedule()
    assert left == [HANDLES_PER_STEP * 2 + 10, HANDLES_PER_STEP + 10, 10]
    assert other.fetch(other.ids) == [HANDLES_PER_STEP * 3 + 9.0]
    bare.engine.close(other.session)
    bare.drain()
    assert bare.device.allocated == 0


def test_the_trace_has_one_release_for_what_goes_together(bare: Bare) -> None:
    """The end of a large session does not drive all other records out of the ring."""
    client = bare.client()
    for n in range(HANDLES_PER_STEP):
        client.upload([n])
    bare.drain()
    before = len(bare.engine.ring.entries)
    copies = {copy.id for tensor in client.session.tensors.values() for copy in tensor.storage.current()}
    bare.engine.close(client.session)
    bare.drain()
    records = bare.engine.ring.records(lambda *_: SourceLocation())[before:]
    (release,) = [record for record in records if record.op == "release"]
    assert {operand.copy for operand in release.operands} == copies


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_releases_of_a_session_that_ends_are_received_when_it_ends(bare: Bare, pieces: int) -> None:
    """The time is not that of the engine's last work, which may be minutes ago."""
    client = bare.client()
    for n in range(HANDLES_PER_STEP * pieces):
        client.upload([n])
    bare.drain()
    before = len(bare.engine.ring.entries)
    ended = bare.now = bare.now + 1_000_000_000
    bare.engine.close(client.session)
    bare.drain()
    records = bare.engine.ring.records(lambda *_: SourceLocation())[before:]
    assert [len(record.operands) for record in records] == [HANDLES_PER_STEP] * pieces
    assert all(ended <= one.received <= one.started for one in records)


def test_what_a_cancellation_reports_is_stamped_when_it_is_cancelled(bare: Bare) -> None:
    client = bare.client()
    x = client.upload([1.0])
    bare.drain()
    client.call("negative", x)
    cancelled = bare.now = bare.now + 1_000_000_000
    bare.engine.cancel(client.session)
    assert bare.engine.scheduler.now >= cancelled


def test_kernels_that_run_in_the_pass_do_not_age_the_releases_behind_them() -> None:
    bare = Bare(inline=True)
    client, other = bare.client(), bare.client()
    for n in range(HANDLES_PER_STEP + 1):
        client.upload([n])
    x = other.upload([1.0])
    negative = other.signature("negative", [ONE])
    bare.drain()
    bare.engine.close(client.session)
    assert bare.engine.directory.leaving
    before = bare.now
    other.send(Call(negative, (x,), (other.new(),), 0, 1))
    *_, call, last = bare.engine.ring.records(lambda *_: SourceLocation())
    assert (call.op, last.opcode) == ("negative", "ReleaseTensor")
    assert before < call.finished <= last.received


# -- memory of sessions that have ended --------------------------------------------------------------------------------

VALUE = 8  # bytes of one value


def crowded(parts: Parts, handles: int) -> Client:
    """A session that fills the device with tensors of one value each, and leaves."""
    client = Client(parts, Limits())
    for n in range(handles):
        client.upload([n])
    parts.drain()
    assert parts.here.backend.allocated == handles * VALUE
    return client


def test_memory_that_an_ended_session_will_release_is_refused_to_nobody() -> None:
    """The memory may be in any of the pieces."""
    parts = Parts(memory=HANDLES_PER_STEP * 3 * VALUE)
    client, other = crowded(parts, HANDLES_PER_STEP * 3), Client(parts, Limits())
    parts.engine.close(client.session)
    parts.engine.receive(other.session, [array_of(other.upload_message([7.0] * HANDLES_PER_STEP * 3))])
    assert parts.engine.directory.leaving
    parts.drain()
    assert not parts.errors
    assert other.fetch(other.ids) == [7.0] * HANDLES_PER_STEP * 3


def test_what_does_not_fit_even_then_fails_once_all_is_released() -> None:
    parts = Parts(memory=HANDLES_PER_STEP * 3 * VALUE)
    client, other = crowded(parts, HANDLES_PER_STEP * 3 - 1), Client(parts, Limits())
    other.upload([7.0])
    parts.engine.close(client.session)
    parts.engine.receive(other.session, [array_of(other.upload_message([7.0] * HANDLES_PER_STEP * 3))])
    parts.drain()
    assert [type(error) for error in parts.errors] == [DeviceMemoryError]
    assert f", where {VALUE} bytes of" in parts.errors[0].message


def test_no_replica_is_dropped_for_memory_that_an_ended_session_will_release() -> None:
    parts = Parts("cpu:0", "sim:0", memory=(HANDLES_PER_STEP * 3 + 20) * VALUE)
    client, other = crowded(parts, HANDLES_PER_STEP * 3), Client(parts, Limits())
    x = other.upload([1.0] * 10)
    tensor = other.session.tensors[x]
    parts.drain()
    parts.residency.operand(tensor, parts.at("sim:0"), Cause(other.session, 0))
    parts.scheduler.bound.clear()
    parts.drain()
    replica = tensor.storage.copies[parts.here]
    parts.here.candidates[replica] = tensor.storage
    parts.engine.close(client.session)
    parts.engine.take(other.session, [array_of(other.upload_message([2.0] * 2 * HANDLES_PER_STEP))])
    assert replica.current
    assert not violations(parts.engine)
    parts.drain()
    assert not parts.errors


def test_what_an_ended_session_holds_elsewhere_is_not_released_for_memory_here() -> None:
    """Releasing it would delay the waiting instruction, and free no memory for it."""
    parts = Parts("cpu:0", "sim:0", memory=HANDLES_PER_STEP * 4 * VALUE)
    other = Client(parts, Limits())
    here = [parts.tensor() for _ in range(HANDLES_PER_STEP * 2)]
    there = [parts.tensor(home="sim:0") for _ in range(HANDLES_PER_STEP * 3)]
    parts.engine.close(parts.session)
    parts.engine.take(other.session, [array_of(other.upload_message([1.0] * HANDLES_PER_STEP * 4))])
    assert not any(tensor.holders for tensor in here)
    assert sum(tensor.holders for tensor in there) == HANDLES_PER_STEP * 2  # one piece goes at once, from any device
    assert not violations(parts.engine)
    parts.drain()
    assert not parts.errors
    assert other.fetch(other.ids) == [1.0] * HANDLES_PER_STEP * 4


def test_what_others_share_counts_where_it_comes_to_lie() -> None:
    """An ended session has its handles to values that others may bring anywhere released with the first piece that is
    looked for."""
    parts = Parts("cpu:0", "sim:0", memory=HANDLES_PER_STEP * 4 * VALUE)
    client, other = Client(parts, Limits()), Client(parts, Limits())
    share(client, other, client.upload([1.0]), "a handle")
    for n in range(HANDLES_PER_STEP * 3):
        client.upload([n])
    parts.drain()
    parts.engine.close(client.session)
    (gone,) = parts.engine.directory.leaving
    assert gone.block_on(parts.at("sim:0")) == [1]
    assert gone.block_on(parts.at("sim:0")) == []
    parts.drain()


@each_case("there", [0, 1, 3])
def test_what_an_ended_session_holds_on_a_device_is_found_wherever_it_is_among_its_handles(there: int) -> None:
    """On a device from which values are evicted, the search does not visit the other handles in vain."""
    parts = Parts("cpu:0", "sim:0", memory=HANDLES_PER_STEP * 9 * VALUE, eviction=Eviction.COST)
    sim = parts.at("sim:0")
    gather(sim, parts.engine.directory.storages())
    handles = 4 * HANDLES_PER_STEP
    on_sim = (
        {handles - 2 * HANDLES_PER_STEP - 1, HANDLES_PER_STEP, 1}
        if there == 3
        else set(range(HANDLES_PER_STEP, HANDLES_PER_STEP + there))
    )
    tensors = [parts.tensor(home="sim:0" if n in on_sim else "cpu:0") for n in range(handles)]
    for n in on_sim:
        sim.candidates[copy_of(tensors[n], sim)] = tensors[n].storage
    parts.engine.close(parts.session)
    (gone,) = parts.engine.directory.leaving
    assert gone.has_nothing_on(sim) is (there == 0)
    found = [id_ for _ in range(there) for id_ in gone.block_on(sim)]
    assert {gone.tensors[id_] for id_ in found} == {tensors[n] for n in on_sim}
    assert gone.block_on(sim) == []
    assert not gone.has_nothing_on(parts.at("cpu:0"))
    parts.drain()


def test_a_small_session_that_ends_behind_a_large_one_is_through_at_once(bare: Bare) -> None:
    large, small = bare.client(), bare.client()
    for n in range(HANDLES_PER_STEP * 3):
        large.upload([n])
    kept = small.upload([1.0])
    bare.drain()
    copy = small.session.tensors[kept].storage.current()[0]
    bare.engine.close(large.session)
    bare.engine.close(small.session)
    assert copy.buffer is None
    assert len(bare.engine.directory.leaving) == 1


def test_sessions_that_have_ended_take_turns(bare: Bare) -> None:
    clients = [bare.client() for _ in range(2)]
    for client in clients:
        for n in range(HANDLES_PER_STEP * 3):
            client.upload([n])
    bare.drain()
    for client in clients:
        bare.engine.close(client.session)
    left = []
    while bare.engine.directory.leaving:
        left.append({gone.session.id: len(gone.tensors) // HANDLES_PER_STEP for gone in bare.engine.directory.leaving})
        bare.engine.schedule()
    assert left == [{1: 2, 2: 2}, {1: 1, 2: 2}, {1: 1, 2: 1}, {2: 1}]
