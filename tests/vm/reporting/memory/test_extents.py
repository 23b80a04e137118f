"""Every byte of a pool is in one extent: its purpose, its maker and holder, and its age.

After each pass of the random programs, `tests/model/accounting.py` checks that extents sum up to the pools, also
for programs with exports.
"""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.wire.segments import available
from tensord.vm.memory.replicas import forget
from tensord.vm.model.directory import Leaving
from tensord.vm.reporting.memory.extents import ARENA, IN_USE, MAPPED, PER_SLICE, STREAM, TEMPORARIES, TENSOR, Walk
from tests.vm.admission.test_exports import SIZE, Daemon
from tests.vm.admission.test_segments import CHAIN, EIGHT, Linked
from tests.vm.bare_engine import Bare
from tests.vm.parts import Parts


def walked(engine):
    """The extents of one walk. They sum up to the pools."""
    found = [extent for part in Walk(engine).slices() for extent in part]
    for name, device in engine.devices.items():
        assert sum(one.nbytes for one in found if one.device == name) == device.backend.allocated
    return found


def of_sort(engine, sort):
    return [extent for extent in walked(engine) if extent.sort == sort]


@pytest.fixture
def bare():
    return Bare()


def test_a_value_has_its_maker_its_holders_and_its_time(bare):
    maker, other = bare.client(), bare.client()
    before = bare.now
    maker.publish("w", ids=[maker.upload(np.ones(8))])
    other.lookup("w")
    (one,) = walked(bare.engine)
    assert (one.device, one.sort, one.nbytes, one.session) == ("cpu:0", TENSOR, 64, maker.session.id)
    assert (set(one.holders), list(one.names)) == ({maker.session.id, other.session.id}, ["w"])
    assert before < one.since <= bare.now
    assert maker.session.source.where(one.location) == "user.py:1"
    assert one.freed_with == 0


def test_what_one_session_holds_alone_goes_with_it_however_many_handles_it_has(bare):
    client = bare.client()
    client.to_device(client.upload(np.ones(8)))
    (one,) = walked(bare.engine)
    assert one.freed_with == client.session.id


def test_what_two_sessions_hold_goes_with_neither(bare):
    maker, other = bare.client(), bare.client()
    maker.publish("w", ids=[maker.upload(np.ones(8))])
    other.lookup("w")
    bare.engine.admission.names.unpublish(["w"])
    (one,) = walked(bare.engine)
    assert (one.names, len(one.holders), one.freed_with) == ((), 2, 0)


def test_a_value_that_only_a_name_holds_has_its_maker_and_no_session_that_holds_it(bare):
    client = bare.client()
    x = client.upload(np.ones(8))
    client.publish("w", "v", ids=[x, x])
    client.release(x)
    (one,) = walked(bare.engine)
    assert (list(one.holders), list(one.names), one.session) == ([], ["w", "v"], client.session.id)


def test_a_result_is_as_old_as_itself_whosever_memory_it_has_taken_over(bare):
    client = bare.client()
    x = client.upload(np.ones(1))
    (before,) = walked(bare.engine)
    client.call("negative", x, released=1)
    (after,) = walked(bare.engine)
    assert after.since > before.since


@pytest.mark.parametrize("inline", [True, False])
def test_results_of_all_ways_have_a_time(inline):
    bare = Bare(inline=inline)
    client = bare.client()
    x = client.upload(np.ones(1))
    client.call("negative", x)
    client.call("negative", x, out=client.to_device(x))  # a storage of its own
    bare.drain()
    found = walked(bare.engine)
    assert len(found) == 3
    assert all(one.since for one in found)


def test_a_value_with_an_error_is_found_without_bytes_with_its_age(bare):
    client = bare.client()
    before = bare.now
    client.call("negative", 404)
    (one,) = walked(bare.engine)
    assert (one.poisoned, one.nbytes, one.holders) == (True, 0, (client.session.id,))
    assert one.since > before


def test_handles_that_an_ended_session_has_still_to_release_are_its_own():
    parts = Parts()
    parts.tensor(8)
    parts.engine.directory.leaving.append(Leaving(parts.session, dict([parts.session.tensors.popitem()])))
    (one,) = walked(parts.engine)
    assert (one.nbytes, one.holders) == (64, (parts.session.id,))


def test_a_stale_copy_is_kept_by_what_reads_it():
    parts = Parts(workers=2)
    x, y = parts.tensor(8), parts.tensor(8)
    parts.op("first", reads=[x], writes=[y])
    parts.op("second", reads=[x])  # on another stream
    parts.release(x)
    (one,) = of_sort(parts.engine, IN_USE)
    assert (one.nbytes, one.holders, one.freed_with) == (64, (parts.session.id,), 0)
    parts.drain()
    assert of_sort(parts.engine, IN_USE) == []


def test_a_buffer_that_waits_for_its_stream_is_the_streams():
    parts = Parts()
    x, y = parts.tensor(8), parts.tensor(8)
    parts.op(reads=[x], writes=[y])
    parts.release(x)
    (one,) = of_sort(parts.engine, STREAM)
    assert (one.nbytes, one.detail, one.session, one.holders) == (64, "cpu:0/compute0", 0, ())
    parts.drain()
    assert of_sort(parts.engine, STREAM) == []


def test_temporaries_of_a_kernel_are_its_sessions():
    parts = Parts()
    instruction = parts.op(writes=[parts.tensor(8)])
    assert parts.device.set_aside(100)
    instruction.scratch = 100
    (one,) = of_sort(parts.engine, TEMPORARIES)
    assert (one.nbytes, one.session, one.since) == (100, parts.session.id, instruction.dispatched)


def test_the_arena_of_a_run_under_way_has_the_runs_name():
    it = Linked(CHAIN, "sim:0")
    assert of_sort(it.parts.engine, ARENA) == []
    it.run()
    (run,) = it.segments
    (one,) = of_sort(it.parts.engine, ARENA)
    assert (one.nbytes, one.detail) == (run.segment.recipe.arena, run.label)
    assert (one.session, one.since) == (it.client.session.id, run.dispatched)
    it.parts.drain()
    assert {extent.sort for extent in walked(it.parts.engine)} == {TENSOR}
    assert run.segment.recipe.arena > EIGHT
    it.close()


@pytest.mark.skipif(not available(), reason="no sealed memory files here")
def test_a_copy_that_a_client_reads_in_place_says_so_also_when_it_is_stale():
    daemon = Daemon()
    client = daemon.client()
    export, _ = client.export(client.upload(np.ones(SIZE // 8)))
    (current,) = walked(daemon.engine)
    assert (current.sort, current.nbytes, current.freed_with) == (MAPPED, SIZE, client.session.id)
    (mapping,) = daemon.engine.residency.releasing.exports.values()
    forget(mapping.copy, mapping.storage)
    (stale,) = walked(daemon.engine)
    assert (stale.sort, stale.nbytes, stale.freed_with) == (MAPPED, SIZE, client.session.id)
    assert stale.since == current.since
    client.release(export)
    assert walked(daemon.engine) == []
    daemon.end()


def test_a_walk_pauses_and_knows_whether_anything_has_happened(bare):
    client = bare.client()
    for _ in range(PER_SLICE + 1):
        client.upload(np.ones(1))
    walk = Walk(bare.engine)
    slices = walk.slices()
    assert len(next(slices)) <= PER_SLICE
    assert walk.still()
    client.upload(np.ones(1))
    assert not walk.still()
    assert sum(map(len, slices)) > 0
