"""`tensord.collectives`: values on each kind of device, refused calls, errors, order, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.embedded.in_process import EmbeddedTransport
from tensord.client.session.session import Session
from tensord.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from tensord.interpreter.collectives.choice import MIN_CHUNK_BYTES
from tensord.interpreter.errors import CancelledError, KernelError, MetadataError, MetadataTypeError, QuotaError
from tensord.vm.machine import VirtualMachine
from tensord.vm.tracing.analysis.sums.stats import stats
from tensord.vm.tracing.record import Record

from ...behaviours.looking_inside import device_of, held

WAIT = 20.0
LIMIT = 0.5  # seconds that a collective has once all threads have started, so that only a step that hangs exceeds it
RANKS = 4
LARGE = (RANKS, MIN_CHUNK_BYTES // 4)  # float32: goes around a ring
MACHINES: dict[str, dict[str, Any]] = {
    "sim": {},
    "without peer access": {"peer": False},
    "on threads": {"inline": False},
    "launching": {"launches": True},
    "late errors": {"late_errors": True},
}
Make = Callable[..., Session]


def machine(make_session: Make, kind: str = "sim", **options: Any) -> Session:
    sims = [{"name": f"sim:{n}", **options} for n in range(RANKS)] if kind == "sim" else []
    cpus = [{"name": f"cpu:{n}", "workers": 1} for n in range(RANKS if kind == "cpu" else 1)]
    return make_session(devices=[*cpus, *sims])


def values_of(shape: Sequence[int], dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(shape) * 9).astype(dtype) for _ in range(RANKS)]


def spread(session: Session, values: Sequence[Any], kind: str = "sim") -> list[td.Tensor]:
    return [session.asarray(value, device=f"{kind}:{n}") for n, value in enumerate(values)]


def steps_of(session: Session) -> list[Record]:
    return [record for record in session.trace().records if record.opcode in {"MoveChunk", "MergeChunk"}]


def check_all(session: Session, values: list[Any], kind: str) -> None:
    """Every collective on these values gives NumPy's results."""
    tensors = spread(session, values, kind)
    for merge in ("copy", "stream"):
        first, *others = [each.numpy() for each in all_reduce(tensors, merge=merge)]
        np.testing.assert_allclose(first, sum(values), rtol=1e-4, atol=1e-4)
        assert all(np.array_equal(first, other) for other in others)
    largest = np.max(values, 0)
    assert np.array_equal(all_reduce(tensors, "max")[3].numpy(), largest)
    for axis in (0, 1):
        assert np.array_equal(all_gather(tensors, axis)[1].numpy(), np.concatenate(values, axis))
        parts = np.array_split(largest, RANKS, axis)
        found = reduce_scatter(tensors, "max", axis)
        assert all(np.array_equal(each.numpy(), part) for each, part in zip(found, parts, strict=True))
        exchanged = all_to_all(tensors, axis, 1 - axis)
        cut = [np.array_split(value, RANKS, axis) for value in values]
        wanted = [np.concatenate([parts[rank] for parts in cut], 1 - axis) for rank in range(RANKS)]
        assert all(np.array_equal(each.numpy(), value) for each, value in zip(exchanged, wanted, strict=True))
    for each in broadcast(tensors[2], [f"{kind}:{n}" for n in (3, 2, 0)]):
        assert np.array_equal(each.numpy(), values[2])


@pytest.mark.parametrize("options", MACHINES.values(), ids=list(MACHINES))
@pytest.mark.parametrize("shape", [(3, 6), LARGE], ids=["direct", "ring"])
def test_values_are_numpys_on_every_kind_of_machine(
    make_session: Make, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    session = machine(make_session, **options)
    check_all(session, values_of(shape), "sim")
    assert session.trace().verify() == []


@pytest.mark.parametrize("shape", [(3, 6), LARGE], ids=["direct", "ring"])
def test_cpu_devices_share_the_hosts_memory(make_session: Make, shape: tuple[int, ...]) -> None:
    session = machine(make_session, "cpu")
    check_all(session, values_of(shape), "cpu")
    assert session.trace().verify() == []


@pytest.mark.parametrize("shape", [(3, 6), LARGE])
def test_the_serial_engine_gives_the_same_bits(make_session: Make, shape: tuple[int, ...]) -> None:
    values = values_of(shape)
    found = []
    for engine in ("vm", "serial"):
        devices = ["cpu:0", *(f"sim:{n}" for n in range(RANKS))]
        session = make_session(devices=devices, engine=engine, expect_empty=engine == "vm")
        tensors = spread(session, values)
        found.append([each.numpy().tobytes() for each in (*all_reduce(tensors), *reduce_scatter(tensors))])
    assert found[0] == found[1]


def test_integers_wrap_around_and_empty_values_are_results_too(make_session: Make) -> None:
    session = machine(make_session)
    tensors = spread(session, [np.full(3, 100, "int8")] * RANKS)
    assert all_reduce(tensors)[0].tolist() == [-112] * 3
    assert [each.shape for each in all_reduce(spread(session, [np.ones((0, 2))] * RANKS))] == [(0, 2)] * RANKS


def test_views_and_moved_tensors_are_taken_as_they_are(make_session: Make) -> None:
    session = machine(make_session)
    values = values_of((6, 4))
    tensors = [session.asarray(value).to_device(f"sim:{n}").T[::2] for n, value in enumerate(values)]
    expected = [value.T[::2] for value in values]
    assert np.array_equal(all_reduce(tensors, "min")[0].numpy(), np.min(expected, 0))
    assert np.array_equal(all_gather(tensors)[2].numpy(), np.concatenate(expected))


def test_a_collective_sees_values_at_its_place_in_the_program(make_session: Make) -> None:
    session = machine(make_session)
    tensors = spread(session, [np.full(4, float(n)) for n in range(RANKS)])
    with held(session, "sim:0", "p2p"):
        results = all_reduce(tensors)
        for each in tensors:
            session.call("add", [each, 100.0], out=[each])
        after = all_reduce(tensors)
        doubled = results[1] * 2
    assert [each.tolist() for each in results] == [[6.0] * 4] * RANKS
    assert after[0].tolist() == [406.0] * 4
    assert doubled.tolist() == [12.0] * 4


def test_one_device_alone_gets_a_copy(make_session: Make) -> None:
    session = machine(make_session)
    x = session.asarray([1.0, 2.0], device="sim:1")
    for each in (*all_reduce([x]), *all_gather([x]), *reduce_scatter([x]), *broadcast(x, ["sim:1"])):
        assert (each.device, each.tolist()) == ("sim:1", [1.0, 2.0])
    x += 1
    assert all_to_all([x], 0, 0)[0].tolist() == [2.0, 3.0]


def test_numbers_of_numpy_and_placements_are_taken(make_session: Make) -> None:
    session = machine(make_session)
    x, y = spread(session, values_of((2, 2)))[:2]
    once, again = all_gather([x, y], 1)[0], all_gather([x, y], np.int64(1), timeout=np.float64(60))[0]  # type: ignore[arg-type]
    assert again.tolist() == once.tolist()
    assert all_reduce([x, y], timeout=np.int32(60))[0].shape == (2, 2)  # type: ignore[arg-type]
    assert [each.device for each in broadcast(x, td.placement(["sim:0", "sim:2"]))] == ["sim:0", "sim:2"]
    with pytest.raises(MetadataError, match="number of an axis"):
        all_gather([x, y], np.bool_(True))  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_at_the_users_line(make_session: Make) -> None:
    session = machine(make_session)
    x, y, z = spread(session, values_of((2, 2)))[:3]
    host = session.asarray([1.0])
    other = session.asarray(np.ones(3), device="sim:2")
    for text, call in (
        ("at least one tensor", lambda: all_reduce([])),
        ("sim:0 twice", lambda: all_reduce([x, x])),
        ("devices of one kind", lambda: all_reduce([x, host])),
        ("must be equal", lambda: all_reduce([x, other])),
        ("unknown reduction 'mean'", lambda: all_reduce([x, y], "mean")),
        ("out of bounds", lambda: all_gather([x, y], 2)),
        ("merge of a collective", lambda: all_reduce([x, y], merge="x")),  # type: ignore[arg-type]
        ("timeout of a collective", lambda: all_reduce([x, y], timeout=-1)),
        ("unknown device 'sim:9'", lambda: broadcast(x, ["sim:9"])),
        ("sim:1 twice", lambda: broadcast(x, ["sim:1", "sim:1"])),
        ("0 devices", lambda: broadcast(x, [])),
        ("bool", lambda: all_reduce([x > 0, y > 0])),
    ):
        with pytest.raises(MetadataError, match=text) as caught:
            call()
        assert "test_collectives.py" in str(caught.value.location)
    whole = session.global_tensor([1.0, 2.0], td.placement(["sim:0", "sim:1"]))
    for text, function, given in (
        ("expected a tensor", all_reduce, [[x, 1.0]]),
        ("list of tensors, one on each device, not int", all_reduce, [3]),
        ("list of tensors, one on each device, not Tensor", all_gather, [x]),
        ("list of tensors, one on each device, not ndarray", all_gather, [np.array(1.0)]),
        ("list of names, or a placement, not str", broadcast, [x, "sim:1"]),
        ("list of names, or a placement, not int", broadcast, [x, 1]),
        ("for a global tensor use to_global", all_reduce, [[whole]]),
        ("for a global tensor use to_global", all_gather, [[x, whole]]),
        ("for a global tensor use to_global", broadcast, [whole, ["sim:0"]]),
    ):
        with pytest.raises(MetadataTypeError, match=text):
            function(*given)
    with pytest.raises(MetadataError, match="another session"):
        all_reduce([x, make_session(devices=["sim:1"]).asarray([1.0])])
    assert all_reduce([x, y, z])[0].shape == (2, 2)


class TestRoutines:
    @pytest.mark.parametrize("shape", [(3, 6), LARGE])
    @pytest.mark.parametrize("passes", ["all", "none"])
    def test_a_routine_gives_the_bits_of_its_function(self, make_session: Make, shape: Any, passes: str) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of(shape))

        def step(*parts: td.Tensor) -> list[td.Tensor]:
            doubled = [part * 2 for part in parts]
            total = all_reduce(doubled)
            shares = reduce_scatter([each + part for each, part in zip(total, parts, strict=True)], "max")
            return [*total, *all_gather(shares), *all_to_all(doubled, 0, 1), *broadcast(total[1], ["sim:0", "sim:3"])]

        expected = [(each.device, each.numpy().tobytes()) for each in step(*tensors)]
        routine = session.routine(step, passes=passes)
        for _ in range(3):
            assert [(each.device, each.numpy().tobytes()) for each in routine(*tensors)] == expected
        trace = session.trace()
        assert trace.verify() == []
        assert sum(record.opcode == "CompleteCollective" for record in trace.records) == 4 * 4 + 1

    def test_a_failed_collective_of_a_run_fails_what_depends_on_it(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of((3,)))
        routine = session.routine(lambda *parts: (all_reduce(parts)[0] + 1, parts[1] * 2))
        routine(*tensors)
        session.sync()
        device_of(session, "sim:2").inject(td_fault("fail"))
        failed, other = routine(*tensors)
        with pytest.raises(KernelError, match="failed on sim:2"):
            failed.wait(WAIT)
        assert other.wait(WAIT).shape == (3,)

    def test_a_loop_of_a_routine_may_hold_one(self, make_session: Make) -> None:
        session = machine(make_session)
        x, y = spread(session, [np.full(2, 1.0), np.full(2, 2.0)])

        def step(x: td.Tensor, y: td.Tensor) -> Any:
            return session.repeat(3, lambda x, y: tuple(all_reduce([x, y])), x, y)

        assert [each.tolist() for each in session.routine(step)(x, y)] == [[12.0] * 2] * 2

    def test_its_text_says_what_it_is_and_reads_back(self, make_session: Make) -> None:
        session = machine(make_session)
        x, y = spread(session, values_of((3,)))[:2]
        routine = session.routine(lambda x, y: all_reduce([x, y], "max", timeout=2))
        routine(x, y)
        program = routine.link(x, y).program
        text = str(program)
        assert "all_reduce %0, %1" in text
        assert "max" in text
        assert td.Program.parse(text) == program


class TestErrors:
    def test_a_failed_value_fails_all_results_with_its_error(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of((2,)))
        bad = session.call("take", [tensors[1], session.asarray([9], device="sim:1")], {"axis": 0})[0]
        good = spread(session, values_of((1,)))
        results = all_reduce([good[0], bad, *good[2:]])
        for each in results:
            with pytest.raises(KernelError, match="take"):
                each.numpy()
        assert all_reduce(good)[0].shape == (1,)
        assert session.trace().verify() == []

    @pytest.mark.parametrize("shape", [(3,), LARGE])
    def test_a_failed_step_fails_all_results_and_names_its_device(self, make_session: Make, shape: Any) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of(shape))
        session.sync()
        device_of(session, "sim:2").inject(td_fault("fail", nth=3))
        results = all_reduce(tensors)
        for each in results:
            with pytest.raises(KernelError, match=r"all_reduce .* failed on sim:2"):
                each.wait(WAIT)
        after = all_reduce(tensors)
        np.testing.assert_allclose(after[2].numpy(), sum(values_of(shape)), rtol=1e-4, atol=1e-4)
        assert session.trace().verify() == []

    def test_a_lost_device_is_named_and_the_others_go_on(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of(LARGE))
        session.sync()
        device_of(session, "sim:3").inject(td_fault("lost", nth=2))
        results = all_reduce(tensors)
        for each in results:
            with pytest.raises(KernelError, match="sim:3 is lost"):
                each.wait(WAIT)
        assert all_reduce(tensors[:3])[0].wait(WAIT).shape == LARGE
        with pytest.raises(KernelError, match="sim:3 is lost"):
            all_reduce(tensors)[0].wait(WAIT)

    def test_a_full_device_fails_all_results(self, make_session: Make) -> None:
        devices = ["cpu:0", "sim:0", {"name": "sim:1", "memory": 1 << 16, "eviction": "never"}]
        session = make_session(devices=devices)
        x, y = (session.asarray(np.ones(1 << 13, "float32"), device=f"sim:{n}") for n in range(2))
        kept = session.asarray(np.ones(1 << 13, "uint8"), device="sim:1")
        for each in all_reduce([x, y]):
            with pytest.raises(td.DeviceMemoryError, match="sim:1"):
                each.wait(WAIT)
        kept.release()

    def test_results_count_in_the_quota(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of((2,)))
        session.sync()
        account = next(iter(session._core.transport.machine.engine.directory.sessions.values())).account
        account.limit = account.bytes + 16
        results = all_reduce(tensors)
        with pytest.raises(QuotaError, match="quota"):
            results[0].wait(WAIT)
        account.limit += 1 << 20
        assert all_reduce(tensors)[0].wait(WAIT).shape == (2,)

    def test_cancel_reaches_all_of_it(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of(LARGE))
        session.sync()
        with held(session, "sim:1", "p2p"):
            results = all_reduce(tensors)
            session.flush()
            session.cancel()
        session.restart()
        for each in results:
            with pytest.raises(CancelledError):
                each.wait(WAIT)
        assert all_reduce(tensors)[0].wait(WAIT).shape == LARGE
        assert session.trace().verify() == []

    @pytest.mark.filterwarnings("default")
    def test_a_device_that_hangs_while_it_makes_a_result_is_named_within_the_timeout(self) -> None:
        machine = VirtualMachine(["cpu:0", "sim:0", "sim:1"], hang_after=0.2)
        session = Session(EmbeddedTransport(machine, machine.close, strict=False))
        tensors = spread(session, values_of((3,))[:2])
        assert all_reduce(tensors)[1].wait(WAIT).shape == (3,)  # all threads have started
        device_of(session, "sim:1").inject(td_fault("hang"))
        for each in all_reduce(tensors, timeout=LIMIT):
            with pytest.raises(KernelError, match=rf"all_reduce .*, result has not ended on sim:1 within {LIMIT} s"):
                each.wait(WAIT)
        device_of(session, "sim:1").release_hangs()
        assert all_reduce(tensors)[1].wait(WAIT).shape == (3,)
        session.close()
        machine.close()

    @pytest.mark.parametrize("launches", [False, True])
    @pytest.mark.filterwarnings("default")
    def test_a_step_that_hangs_fails_the_results_within_its_timeout_and_blocks_nobody(self, launches: bool) -> None:
        sims = [{"name": f"sim:{n}", "launches": launches} for n in range(RANKS)]
        machine = VirtualMachine(["cpu:0", *sims], hang_after=0.2)
        session = Session(EmbeddedTransport(machine, machine.close, strict=False))
        tensors = spread(session, values_of(LARGE))
        assert all_reduce(tensors)[3].wait(WAIT).shape == LARGE  # all threads have started
        device_of(session, "sim:2").inject(td_fault("hang", nth=2))
        results = all_reduce(tensors, timeout=LIMIT)
        for each in results:
            with pytest.raises(KernelError, match=rf"all_reduce .* on sim:2 within {LIMIT} s"):
                each.wait(WAIT)
        with pytest.raises(KernelError, match="on sim:2 within"):
            (results[0] + 1).wait(WAIT)
        assert all_reduce(tensors[:2])[0].wait(WAIT).shape == LARGE
        assert (tensors[2] * 2).wait(WAIT).shape == LARGE
        device_of(session, "sim:2").release_hangs()
        assert all_reduce(tensors)[3].wait(WAIT).shape == LARGE
        session.sync(WAIT)
        assert session.trace().verify() == []
        session.close()
        machine.close()

    def test_a_timeout_that_no_step_reaches_changes_nothing(self, make_session: Make) -> None:
        session = machine(make_session, bandwidth=64e6)
        tensors = spread(session, values_of(LARGE))
        assert all_reduce(tensors, timeout=60)[0].wait(WAIT).shape == LARGE


def td_fault(kind: str, **given: Any) -> Any:
    from tensord.streams.faults import Fault

    return Fault.of({"kind": kind, "stream": "p2p", **given})


class TestMemory:
    def test_evicted_tensors_come_back_for_it(self, make_session: Make) -> None:
        session = machine(make_session, memory=4 << 20)
        values = values_of((RANKS, MIN_CHUNK_BYTES))
        tensors = spread(session, values)
        for each in tensors:
            each.evict()
        np.testing.assert_allclose(all_reduce(tensors)[1].numpy(), sum(values), rtol=1e-4, atol=1e-4)
        assert session.trace().verify() == []

    @pytest.mark.parametrize("peer", [True, False])
    def test_nothing_is_left_but_the_results(self, make_session: Make, peer: bool) -> None:
        session = machine(make_session, peer=peer)
        tensors = spread(session, values_of(LARGE))
        for merge in ("copy", "stream"):
            results = all_reduce(tensors, merge=merge)
            session.sync()
            nbytes = tensors[0].nbytes
            for n in range(RANKS):
                assert session.stats()["devices"][f"sim:{n}"]["allocated"] == 2 * nbytes
                assert session.stats()["devices"][f"sim:{n}"]["planned"] == 2 * nbytes
            assert session.stats()["devices"]["cpu:0"]["allocated"] == 0
            del results
        session.sync()

    def test_merges_take_two_pieces_at_the_most_beside_the_results(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of((RANKS, 1 << 19)))
        session.sync()
        machine_of = device_of(session, "sim:0")
        peaks: list[int] = []
        merge = type(machine_of).merge

        def watched(self: Any, *arrays: Any, **given: Any) -> None:
            peaks.append(self.allocated)
            merge(self, *arrays, **given)

        type(machine_of).merge = watched
        try:
            all_reduce(tensors)[0].wait(WAIT)
        finally:
            type(machine_of).merge = merge
        assert max(peaks) <= 2 * tensors[0].nbytes + (2 << 20)


class TestTrace:
    def test_steps_are_shown_by_name_with_their_bytes(self, make_session: Make) -> None:
        session = machine(make_session)
        all_reduce(spread(session, values_of(LARGE)))[0].wait(WAIT)
        steps = [record for record in steps_of(session) if record.device == "sim:1"]
        names = [record.op.partition(" #")[0] for record in steps]
        assert set(names) == {"all_reduce 256 KiB ring of 4"}
        assert [record.op.rpartition(", ")[2] for record in steps] == [f"step {n} of 6" for n in range(1, 7)]
        assert {record.nbytes for record in steps} == {MIN_CHUNK_BYTES}
        assert session.stats()["collectives"] == {"all_reduce": {"count": 1, "bytes": 4 * MIN_CHUNK_BYTES}}

    def test_sums_have_one_row_for_all_such_collectives(self, make_session: Make) -> None:
        session = machine(make_session)
        tensors = spread(session, values_of(LARGE))
        for _ in range(2):
            all_reduce(tensors)[0].wait(WAIT)
        trace = session.trace()
        (row,) = [row for row in stats(trace, trace.records).ops if row.key.startswith("all_reduce")]
        assert (row.key, row.moved) == ("all_reduce 256 KiB ring of 4", 2 * RANKS * 6 * MIN_CHUNK_BYTES)
        assert row.count == 2 * (RANKS + 6 * RANKS + 1)

    def test_why_tells_of_the_step_that_was_waited_for(self, make_session: Make) -> None:
        session = machine(make_session, bandwidth=MIN_CHUNK_BYTES / 0.01)
        doubled = (all_reduce(spread(session, values_of(LARGE)))[2] * 2).wait(WAIT)
        trace = session.trace()
        last = next(record for record in trace.records[::-1] if record.op == "multiply")
        told = str(trace.why(last.id))
        assert doubled.shape == LARGE
        assert "all_reduce 256 KiB ring of 4 #" in told
        assert "step 6 of 6" in told

    def test_a_step_begins_when_its_chunk_is_there(self, make_session: Make) -> None:
        """A step does not wait until all ranks have done the step before: a held rank does not hold up the others."""
        session = machine(make_session, inline=False)
        tensors = spread(session, values_of(LARGE))
        session.sync()
        with held(session, "sim:0", "p2p"):
            results = all_reduce(tensors)
            session.flush()
            done = wait_for_steps(session, {"sim:1": 1, "sim:2": 2, "sim:3": 3})
        results[0].wait(WAIT)
        assert done == {"sim:1": 1, "sim:2": 2, "sim:3": 3}


def wait_for_steps(session: Session, wanted: dict[str, int]) -> dict[str, int]:
    """Drive the machine until so many steps of each device are done; the steps that are done."""
    found: dict[str, int] = {}
    for _ in range(100_000):
        done = [record.device for record in steps_of(session) if record.status == "DONE"]
        found = {device: done.count(device) for device in wanted}
        if found == wanted:
            break
        session._core.transport.machine.drive()
    return found
