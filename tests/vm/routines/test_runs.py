"""Runs of segments: an engine's work for them beside the work of their ops."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError, ProtocolError, QuotaError, TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.messages import Release
from tensord.interpreter.wire.program_messages import Run
from tensord.streams.host.host import SHARED_WORK
from tensord.vm.routines.compiling.arena import ALIGNMENT
from tensord.vm.routines.running.segment import IDLE, MAX_IDLE_ARENA, STAYING, CompiledSegment
from tensord.vm.tracing.flat import SourceLocation
from tests.model.ops import failing_ops

from ..bare_engine import Bare, Client
from ..programs import LINE, ONE, chain_of, increment, link, run, run_message

LARGE = Meta.of((MAX_IDLE_ARENA // 8 + 1,), "float64")


@pytest.fixture
def bare() -> Bare:
    bare = Bare()
    segments = bare.engine.admission.routines.segments
    segments.at_once.limit = 0  # runs are instructions
    segments.find_fusions = lambda _program, _terms: []  # and their ops are calls
    return bare


def warm(client: Client, program: Program, inputs: tuple[int, ...]) -> int:
    """A routine that has run once, op by op."""
    routine = link(client, program)
    client.send(Release(run(client, routine, program, inputs)))
    client.bare.drain()
    return routine


def segments_of(client: Client, routine: int) -> list[CompiledSegment]:
    found: Any = client.session.routines[routine]
    return [each for each in found.segments.values() if each is not None]


def sliced(length: int) -> Program:
    """A chain, two calls of which fill a slice."""
    return chain_of(length, meta=Meta.of((150_000,), "float64"))


class TestTurns:
    def test_sessions_take_turns_and_a_sessions_runs_come_one_after_the_other(self, bare: Bare) -> None:
        bare.engine.devices["cpu:0"].inline_work = 1 << 20
        program, order = sliced(8), []
        clients = [bare.client(), bare.client()]
        routines, inputs = [], []
        for client in clients:
            client.send(client.upload_message(np.zeros(150_000)))
            inputs.append(client.ids)
            routines.append(warm(client, program, (client.ids,)))
        for index, count in ((0, 3), (1, 1)):
            client = clients[index]
            for _ in range(count):
                bare.engine.receive(
                    client.session, [encode(run_message(client, routines[index], program, (inputs[index],)))]
                )
        before = bare.engine.scheduler.retired
        running = bare.engine.running
        while bare.engine.schedule():
            order.append({session.id: len(waiting) for session, waiting in running.items()})
        assert bare.engine.scheduler.retired == before + 4
        last = [max(n for n, row in enumerate(order) if client.session.id in row) for client in clients]
        assert last[1] < last[0] / 2  # the one run waits for at most as many slices of the others as it has itself

    def test_a_lost_device_ends_a_run_between_two_slices(self, bare: Bare) -> None:
        bare.engine.devices["cpu:0"].inline_work = 1 << 20
        program, client = sliced(8), bare.client()
        client.send(client.upload_message(np.zeros(150_000)))
        x = client.ids
        routine = warm(client, program, (x,))
        message = run_message(client, routine, program, (x,))
        bare.engine.receive(client.session, [encode(message)])
        assert any(bare.engine.schedule() and bare.engine.running for _ in range(9))
        bare.device.lost = KernelError("the device is lost")
        bare.schedule()
        with pytest.raises(TensordError, match="lost"):
            client.fetch(message.outputs[0])


def encode(message: Any) -> list[Any]:
    from tensord.interpreter.wire.messages import encode_message

    return encode_message(message)


class TestMemory:
    def test_what_waits_for_a_run_has_no_operands_and_no_large_arena(self, bare: Bare) -> None:
        for meta, kept in ((ONE, True), (LARGE, False)):
            client, program = bare.client(), chain_of(4, meta=meta)
            client.send(client.upload_message(np.zeros(meta.shape)))
            x = client.ids
            routine = warm(client, program, (x,))
            for _ in range(3):
                client.send(Release(run(client, routine, program, (x,))))
                bare.drain()
            (segment,) = segments_of(client, routine)
            assert len(segment.idle) == kept <= IDLE
            for replay in segment.idle:
                assert replay._last == [None] * replay.slots
                arguments = [each for _, calls in replay.slices for _, given in calls for each in given]
                assert sum(each is None for each in arguments) == 2  # the parameter and the result
            bare.engine.close(client.session)
            bare.schedule()
        assert bare.device.allocated == 0

    def test_an_arena_is_counted_while_a_run_needs_it(self, bare: Bare) -> None:
        client, program = bare.client(), chain_of(3)
        x = client.upload([1.0])
        routine = warm(client, program, (x,))
        before = bare.device.allocated
        (result,) = run(client, routine, program, (x,))
        assert client.fetch(result) == [-1.0]
        assert bare.device.allocated == before + ONE.nbytes
        (record,) = [each for each in bare.engine.ring.records(lambda *_: NOWHERE) if each.opcode == "RunRoutine"]
        assert record.used == before + ONE.nbytes + segments_of(client, routine)[0].recipe.arena


class TestAtOnce:
    """Runs of small segments, which are carried out where they are admitted."""

    @pytest.fixture(autouse=True)
    def run_at_once(self, bare: Bare) -> None:
        bare.engine.admission.routines.segments.at_once.limit = 1 << 30
        bare.engine.devices["cpu:0"].inline_work = 1 << 30

    def test_runs_use_one_replay_whatever_becomes_of_the_pools_memory(self, bare: Bare) -> None:
        client, program = bare.client(), chain_of(3)
        x = client.upload([1.0])
        routine = warm(client, program, (x,))
        client.send(Release(run(client, routine, program, (x,))))
        (replay,) = segments_of(client, routine)[0].ready
        for value in (2.0, 3.0):
            x = client.upload([value])  # takes the memory that was freed last
            (result,) = run(client, routine, program, (x,))
            assert client.fetch(result) == [-value]
            assert segments_of(client, routine)[0].ready == [replay]
        assert replay.arena.ctypes.data % ALIGNMENT == 0
        assert len(replay.arena) == segments_of(client, routine)[0].recipe.arena

    def test_all_runs_use_the_same_memory_inside(self, bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise a routine of many segments would keep one arena for each between its runs."""
        taken: list[int] = []
        workspace = bare.device.workspace

        def counting(nbytes: int) -> Any:
            taken.append(nbytes)
            return workspace(nbytes)

        monkeypatch.setattr(bare.device, "workspace", counting)
        client = bare.client()
        x = client.upload([1.0])
        for length in (3, 4, 700, 5, 3):
            program = chain_of(length)
            routine = warm(client, program, (x,))
            for _ in range(2):
                (result,) = run(client, routine, program, (x,))
                assert client.fetch(result) == [(-1.0) ** length]
        assert len(taken) == 1
        assert taken[0] < 2 * MAX_IDLE_ARENA

    def test_an_arena_counts_while_the_run_needs_it(self, bare: Bare) -> None:
        client, program = bare.client(), chain_of(3)
        x = client.upload([1.0])
        routine = warm(client, program, (x,))
        before = bare.device.allocated
        run(client, routine, program, (x,))
        assert bare.device.allocated == before + ONE.nbytes
        (record,) = [each for each in bare.engine.ring.records(lambda *_: NOWHERE) if each.opcode == "RunRoutine"]
        assert record.used == before + ONE.nbytes + segments_of(client, routine)[0].recipe.arena

    def test_a_run_waits_where_its_arena_does_not_fit(self, bare: Bare) -> None:
        client, program = bare.client(), chain_of(3)
        x = client.upload([1.0])
        routine = warm(client, program, (x,))
        bare.device.limit = bare.device.allocated + 2 * ONE.nbytes
        (result,) = run(client, routine, program, (x,))
        assert client.fetch(result) == [-1.0]
        assert not [each for each in bare.engine.ring.records(lambda *_: NOWHERE) if each.opcode == "RunRoutine"]

    def test_large_operands_stay_bound_only_if_the_routine_captures_them(self, bare: Bare) -> None:
        builder, meta = Builder(), Meta.of((STAYING // 8 + 1,), "float64")
        x, w = builder.parameter(meta), builder.captured(meta)
        (y,) = builder.op("add", (x, w), location=LINE)
        (y,) = builder.op("negative", (y,), location=LINE)
        program = builder.finish([y])
        client = bare.client()
        client.send(client.upload_message(np.ones(meta.shape)), client.upload_message(np.ones(meta.shape)))
        x, w = client.ids - 1, client.ids
        routine = link(client, program, (w,))
        for _ in range(3):
            client.send(Release(run(client, routine, program, (x,))))
        (segment,) = segments_of(client, routine)
        (replay,) = segment.ready
        assert [array is not None for array in replay._last] == [False, True, False]

    def test_what_is_written_has_one_name_and_nobody_else(self, bare: Bare) -> None:
        builder = Builder()
        x, y = builder.parameter(ONE), builder.parameter(ONE)
        (x,) = builder.op("add", (x, y), into=(x,), location=LINE)
        builder.op("add", (y, x), into=(y,), location=LINE)
        program = builder.finish([])
        client = bare.client()
        x, y = client.upload([1.0]), client.upload([2.0])
        routine = warm(client, program, (x, y))
        assert [client.fetch(x), client.fetch(y)] == [[3.0], [5.0]]
        kept = client.to_device(x)
        for inputs in ((x, y), (y, x), (x, x)):
            run(client, routine, program, inputs)
        assert [client.fetch(x), client.fetch(y), client.fetch(kept)] == [[116.0], [21.0], [3.0]]


class TestViews:
    """Views that leave a segment take effect once the segment has been admitted."""

    @pytest.fixture(params=[0, 1 << 30], ids=["instructions", "at once"], autouse=True)
    def at_once(self, bare: Bare, request: pytest.FixtureRequest) -> None:
        bare.engine.admission.routines.segments.at_once.limit = request.param

    def views(self, *, whole: bool) -> Program:
        """(x) -> the transposed of -x, a row of that, and -x itself if `whole`."""
        builder = Builder()
        x = builder.parameter(Meta.of((2, 3), "float64"))
        (y,) = builder.op("abs", [x], location=LINE)
        (y,) = builder.op("negative", [y], location=LINE)
        (turned,) = builder.op("transpose", [y], location=LINE)
        (row,) = builder.op("getitem", [turned], {"index": (1,)}, location=LINE)
        return builder.finish([turned, row, *([y] if whole else [])])

    @pytest.mark.parametrize("whole", [False, True])
    def test_they_are_views_of_what_the_segment_makes(self, bare: Bare, whole: bool) -> None:
        client, program = bare.client(), self.views(whole=whole)
        x = client.upload([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        routine = warm(client, program, (x,))
        turned, row, *_ = found = run(client, routine, program, (x,))
        assert len(segments_of(client, routine)) == 1
        assert client.fetch(turned) == [[-1.0, -4.0], [-2.0, -5.0], [-3.0, -6.0]]
        assert client.fetch(row) == [-2.0, -5.0]
        tensors = client.session.tensors
        assert len({id(tensors[each].storage) for each in found}) == 1
        assert tensors[turned].storage.sharers == len(found)
        assert set(tensors) == {x, *found}

    def test_what_was_made_for_them_alone_is_gone_with_them(self, bare: Bare) -> None:
        client, program = bare.client(), self.views(whole=False)
        x = client.upload([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        routine = warm(client, program, (x,))
        before = bare.device.allocated
        found = run(client, routine, program, (x,))
        bare.drain()
        assert bare.device.allocated == before + 48
        client.release(found[0])
        assert client.fetch(found[1]) == [-2.0, -5.0]
        client.release(found[1])
        assert bare.device.allocated == before

    def test_a_write_to_what_they_are_of_leaves_them_alone(self, bare: Bare) -> None:
        client, program = bare.client(), self.views(whole=True)
        x = client.upload([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        routine = warm(client, program, (x,))
        _, row, y = run(client, routine, program, (x,))
        client.call("add", y, y, out=y, meta=((2, 3), "float64"))
        assert client.fetch(y) == [[-2.0, -4.0, -6.0], [-8.0, -10.0, -12.0]]
        assert client.fetch(row) == [-2.0, -5.0]

    def test_a_parameter_that_is_written_may_have_them(self, bare: Bare) -> None:
        builder, meta = Builder(), Meta.of((2, 2), "float64")
        x = builder.parameter(meta)
        (y,) = builder.op("negative", [x], location=LINE)
        (x,) = builder.op("add", [x, y], into=[x], location=LINE)
        (x,) = builder.op("subtract", [x, y], into=[x], location=LINE)
        (turned,) = builder.op("transpose", [x], location=LINE)
        program = builder.finish([turned])
        client = bare.client()
        x = client.upload([[1.0, 2.0], [3.0, 4.0]])
        routine = warm(client, program, (x,))
        kept = [run(client, routine, program, (x,))[0] for _ in range(2)]
        assert segments_of(client, routine)
        for each in kept:
            assert client.fetch(each) == [[1.0, 3.0], [2.0, 4.0]]

    def test_they_count_in_the_quota_of_tensors(self, bare: Bare) -> None:
        client, program = bare.client(tensors=5), self.views(whole=False)
        x = client.upload([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        routine = link(client, program)
        for _ in range(4):
            client.send(Release(run(client, routine, program, (x,))))
            bare.drain()
        assert segments_of(client, routine)
        fillers = [client.upload([1.0]) for _ in range(3)]
        found = run(client, routine, program, (x,))
        with pytest.raises(QuotaError, match="tensors"):
            [client.fetch(each) for each in found]
        client.release(*fillers)


class TestThreads:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_threads_share_a_large_block_as_far_as_the_device_has_some(self, workers: int) -> None:
        def polynomial(x: Any) -> Any:
            return ((x * 2 + 1) * x - 3) * x

        helpers = []
        with td.connect("local", devices=[{"name": "cpu:0", "workers": workers}]) as session:
            x = session.asarray(np.linspace(-1, 1, SHARED_WORK // 4, dtype=np.float32))
            routine = session.routine(polynomial)
            expected = polynomial(x).numpy()
            for _ in range(3):
                np.testing.assert_array_equal(routine(x).numpy().view("u4"), expected.view("u4"))
            helpers = [each for each in threading.enumerate() if each.name.startswith("tensord cpu:0/helpers")]
        assert len(helpers) == workers - 1
        assert not any(each.is_alive() for each in helpers)


NOWHERE = SourceLocation()


class TestErrors:
    def test_what_is_written_over_a_failure_leaves_the_other_results_alone(self, bare: Bare) -> None:
        matrix = Meta.of((64, 64), "float64")
        builder = Builder()
        x, total = builder.parameter(matrix), builder.parameter(matrix)
        builder.op("add", (total, x), into=(total,))
        (result,) = builder.op("negative", (x,))
        program = builder.finish([result])
        client = bare.client()
        x, total, singular = (client.upload(np.full((64, 64), value)) for value in (2.0, 0.0, 0.0))
        routine = warm(client, program, (x, total))
        failed = client.call("inv", singular, meta=((64, 64), "float64"))
        bare.drain()
        (result,) = run(client, routine, program, (x, failed))
        np.testing.assert_array_equal(client.fetch(result), np.full((64, 64), -2.0))
        with pytest.raises(KernelError, match="inv"):
            client.fetch(failed)

    @pytest.mark.parametrize("at_once", [0, 1 << 20])
    def test_a_result_that_fails_alone_spares_the_others_of_its_op(self, bare: Bare, at_once: int) -> None:
        bare.engine.admission.routines.segments.at_once.limit = at_once
        with failing_ops():
            builder = Builder()
            healthy, failed = builder.op("model_split", (builder.parameter(ONE),), location=LINE)
            found = [builder.op("negative", (value,), location=LINE)[0] for value in (healthy, failed)]
            program = builder.finish([*found, healthy])
            client = bare.client()
            x = client.upload([2.0])
            routine = link(client, program)
            for _ in range(2):
                negated, lost, whole = run(client, routine, program, (x,))
                assert [client.fetch(negated), client.fetch(whole)] == [[-2.0], [2.0]]
                with pytest.raises(KernelError, match="the second result failed") as info:
                    client.fetch(lost)
                assert (info.value.op, info.value.location) == ("model_split", "user.py:1")
            assert segments_of(client, routine)
        assert [str(error).count("second") for error in bare.errors] == [1, 1]


class TestRefusals:
    def test_an_op_that_cannot_be_planned_fails_and_the_engine_goes_on(self, bare: Bare, monkeypatch: Any) -> None:
        def raises(*_: Any) -> int:
            raise ZeroDivisionError("no estimate")

        monkeypatch.setitem(REGISTRY, "negative", replace(REGISTRY["negative"], work=raises))
        client, program = bare.client(), chain_of(2)
        x = client.upload([1.0])
        routine = link(client, program)
        for _ in range(3):
            (result,) = run(client, routine, program, (x,))
            with pytest.raises(ProtocolError, match="no estimate"):
                client.fetch(result)
        assert bare.engine.fault is None
        monkeypatch.undo()
        (result,) = run(client, routine, program, (x,))
        assert client.fetch(result) == [1.0]

    def test_a_quota_that_has_room_again_refuses_no_more(self, bare: Bare) -> None:
        client, program = bare.client(operands=10), chain_of(8)
        x = client.upload([1.0])
        first, second = link(client, program), link(client, program)
        assert client.fetch(run(client, first, program, (x,))[0]) == [1.0]
        for _ in range(2):
            with pytest.raises(QuotaError, match="operands"):
                client.fetch(run(client, second, program, (x,))[0])
        plans = len(client.session.plans)
        client.send(Release((first,)))
        for _ in range(3):
            assert client.fetch(run(client, second, program, (x,))[0]) == [1.0]
        assert len(client.session.plans) < plans
        assert segments_of(client, second)

    def test_the_constants_of_a_program_are_its_own(self, bare: Bare) -> None:
        client, program = bare.client(), increment()
        x = client.upload([0.0])
        routine = link(client, program)
        for _ in range(3):
            client.send(Run(routine, (x,), (5.0,), (), (), LINE))
        assert client.fetch(x) == [3.0]

    def test_texts_and_numbers_count_in_the_quota_of_steps(self, bare: Bare) -> None:
        builder = Builder()
        builder.print(["x" * 60_000], [])
        for _ in range(160):
            builder.number("float", "parameter")
        program = builder.finish([])
        assert program.weight == builder.weight() == 1 + 60_000 // 256 + 10
        client = bare.client(steps=200)
        routine = link(client, program)
        with pytest.raises(QuotaError, match="steps"):
            raise client.session.routines[routine]  # type: ignore[misc]
        assert client.session.steps == 0
