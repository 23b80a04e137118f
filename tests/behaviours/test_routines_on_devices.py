"""Routines on simulated devices, and on several devices at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.routines.running.replay import Replay
from tensord.vm.tracing.analysis.inside.insides import Insides
from tensord.vm.tracing.record import Record

from ..compiled import replaces_parts
from .looking_inside import WAIT, device_of, records

TWO = ["cpu:0", {"name": "sim:0", "compute_delay": 1e-6}, {"name": "sim:1", "compute_delay": 1e-6}]
HALVES = """\
tensord program 1
parameter %0 x: float32[4] on d0
parameter %1 y: float32[4] on d1
%2: float32[4] = negative %0 on d0
%3: float32[4] = square %2 on d0
%4: float32[4] = negative %1 on d1
%5: float32[4] = add %4, %4 on d1
%6: float32[4] = to_device %5 on d0
%7: float32[4] = add %3, %6 on d0
%8: float32[4] = multiply %7, %7 on d0
return %8"""


def ones(value: float = 1.0) -> Any:
    return np.full(4, value, np.float32)


def segments(session: Session) -> list[Record]:
    """The records of segments that were run on a stream."""
    return [record for record in records(session, opcode="RunRoutine") if record.stream]


def chain(x: td.Tensor) -> td.Tensor:
    for _ in range(4):
        x = -(x + 1.0)
    return x


class TestSeveralDevices:
    @pytest.fixture
    def halves(self, make_session: Callable[..., Session]) -> tuple[Session, Any, tuple[td.Tensor, td.Tensor]]:
        s = make_session(devices=TWO)
        f = s.link(td.Program.parse(HALVES), devices={"d0": "sim:0", "d1": "sim:1"})
        given = s.asarray(ones(2.0), device="sim:0"), s.asarray(ones(3.0), device="sim:1")
        (found,) = f(*given)  # op by op
        assert found.tolist() == [4.0] * 4
        return s, f, given

    def test_pieces_on_different_devices_run_at_the_same_time(self, halves: Any) -> None:
        s, f, given = halves
        meeting = threading.Barrier(2)
        for name in ("sim:0", "sim:1"):
            stream = device_of(s, name).compute[0]
            stream.intercept = meet_once(meeting, stream.intercept)
        (found,) = f(*given)
        assert found.tolist() == [4.0] * 4
        here, there, last = segments(s)
        assert [record.device for record in (here, there, last)] == ["sim:0", "sim:1", "sim:0"]
        assert max(here.started, there.started) < min(here.finished, there.finished)
        assert last.started >= there.finished

    def test_the_last_piece_is_dispatched_before_the_others_have_ended(self, halves: Any) -> None:
        s, f, given = halves
        for name in ("sim:0", "sim:1"):
            device_of(s, name).hold("compute")
        (found,) = f(*given)
        s.flush()
        for name in ("sim:0", "sim:1"):
            device_of(s, name).resume("compute")
        assert found.tolist() == [4.0] * 4
        here, there, last = segments(s)
        assert last.dispatched < min(here.started, there.started)
        assert all(edge.elided for edge in last.edges)

    def test_the_report_says_where_each_piece_runs(self, halves: Any) -> None:
        _, f, given = halves
        f(*given)[0].wait(WAIT)
        text = str(f.report())
        for line in (
            "steps 0 to 1 on sim:0: 2 calls",
            "steps 2 to 3 on sim:1: 2 calls",
            "steps 5 to 6 on sim:0: 2 calls",
        ):
            assert line in text

    def test_a_device_that_is_lost_takes_what_depends_on_it(self, halves: Any) -> None:
        s, f, given = halves
        device_of(s, "sim:1").inject(Fault(FaultKind.LOST, label="add"))
        with pytest.raises(td.KernelError, match="sim:1 is lost"):
            f(*given)[0].numpy()
        (x,) = given[:1]
        assert (x + 1.0).tolist() == [3.0] * 4


def meet_once(meeting: threading.Barrier, intercept: Callable[[Any], None]) -> Callable[[Any], None]:
    """Each of two streams waits at its first op until the other stream is there."""
    waiting = [meeting]

    def meet(task: Any) -> None:
        if waiting:
            waiting.pop().wait(WAIT)
        intercept(task)

    return meet


class TestTime:
    def test_a_segment_takes_as_long_as_its_ops(self, make_session: Callable[..., Session]) -> None:
        for option, value in (("compute_delay", 0.001), ("compute_rate", ones().size * 1000)):
            s = make_session(devices=["cpu:0", {"name": "sim:0", option: value}])
            f, x = s.routine(chain), s.asarray(ones(), device="sim:0")
            expected = f(x).tolist()
            assert f(x).tolist() == expected
            (record,) = segments(s)
            assert record.finished - record.started >= 8_000_000

    def test_the_times_of_its_ops_are_in_the_trace(self, make_session: Callable[..., Session]) -> None:
        s = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.001}], detail=1)
        f, x = s.routine(chain), s.asarray(ones(), device="sim:0")
        f(x).wait(WAIT)
        f(x).wait(WAIT)
        trace = s.trace()
        calls = Insides(trace).calls(segments(s)[0])
        assert len(calls) == 8
        assert all(call.finished - call.started >= 1_000_000 for call in calls)
        assert trace.verify() == []

    def test_a_segment_holds_a_stream_no_longer_than_a_large_kernel(self, make_session: Callable[..., Session]) -> None:
        s = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.004}])
        f, x = s.routine(chain), s.asarray(ones(), device="sim:0")
        expected = f(x).tolist()
        assert f(x).tolist() == expected
        assert [piece["last"] - piece["first"] + 1 for piece in f.report()["pieces"]] == [2] * 4


class TestMemory:
    @replaces_parts
    @pytest.mark.parametrize("inline", [True, False])
    def test_no_value_of_a_segment_lies_in_memory_of_the_host(
        self, make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, inline: bool
    ) -> None:
        s = make_session(devices=["cpu:0", {"name": "sim:0", "inline": inline}])
        device = device_of(s, "sim:0")
        seen: list[Any] = []
        patch = Replay.patch

        def look(self: Replay, *given: Any) -> None:
            patch(self, *given)
            seen.extend(each for _, calls in self.slices for _, arguments in calls for each in arguments)

        f, x = s.routine(chain), s.asarray(ones(), device="sim:0")
        expected = f(x).tolist()
        monkeypatch.setattr(Replay, "patch", look)
        assert f(x).tolist() == expected
        arrays = [each for each in seen if isinstance(each, np.ndarray) and each.ndim]
        assert len(arrays) > 8
        assert all(device.owns(array) for array in arrays)

    def test_a_routine_that_does_not_fit_as_a_whole_runs_op_by_op(self, make_session: Callable[..., Session]) -> None:
        s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 16 * 5}])

        def f(x: td.Tensor) -> td.Tensor:
            a, b, c = x + 1.0, x + 2.0, x + 3.0
            return (a + b) + c

        step, x = s.routine(f), s.asarray(ones(), device="sim:0")
        for n in range(3):
            assert step(x).tolist() == [9.0] * 4, n
