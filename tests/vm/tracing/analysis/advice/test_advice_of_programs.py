"""Each rule finds its problem at the right lines of a bad program, and nothing in the corrected program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import tensord as td
from tensord.vm.tracing.analysis.advice.advise import Advice, advise
from tensord.vm.tracing.analysis.advice.compiling import kernels_compiled
from tensord.vm.tracing.analysis.advice.finding import Evidence
from tensord.vm.tracing.analysis.recorded.filter import Filter

MakeSession: TypeAlias = Callable[..., td.Session]
ONES = np.ones((64, 64), np.float32)
SIM = {"name": "sim:0", "latency": 0.001}


def advice(*sessions: td.Session) -> Advice:
    for session in sessions:
        session.sync()
    return advise(sessions[0].trace())


def rules(found: Advice) -> dict[str, int]:
    """How often each rule has found its problem."""
    return {one.rule: one.count for one in found.findings}


@pytest.fixture
def session(make_session: MakeSession) -> td.Session:
    return make_session(devices=["cpu:0", SIM])


class TestTransfers:
    def test_there_and_back(self, session: td.Session) -> None:
        x = session.asarray(ONES, device="sim:0")
        for _ in range(4):
            x = (x.to_device("cpu:0") + 1).to_device("sim:0") * 2
        (one,) = [each for each in advice(session).findings if each.rule == "there and back"]
        assert (one.count, one.devices, len(one.instructions)) == (4, ("sim:0", "cpu:0"), 8)
        assert one.cost >= 8_000_000
        assert "TestTransfers.test_there_and_back" in one.lines[0].location

    def test_what_is_used_elsewhere_for_longer_has_a_reason(self, session: td.Session) -> None:
        x = session.asarray(np.ones((400, 400)), device="sim:0")
        away = x.to_device("cpu:0")
        for _ in range(4):
            away = away @ away / 400
        (away.to_device("sim:0") * 2).wait()
        assert "there and back" not in rules(advice(session))

    def test_what_does_not_come_back(self, session: td.Session) -> None:
        x = session.asarray(ONES, device="sim:0")
        for _ in range(4):
            x *= 2
            (x.to_device("cpu:0") + 1).wait()
        assert "there and back" not in rules(advice(session))

    def test_through_the_program(self, session: td.Session) -> None:
        x = session.asarray(ONES, device="sim:0")
        for _ in range(4):
            x = session.asarray(np.sqrt((x * 2).numpy()), device="sim:0")
        (one,) = [each for each in advice(session).findings if each.rule == "through the host"]
        assert (one.count, one.devices) == (4, ("sim:0",))
        assert one.cost >= 8_000_000

    def test_what_is_computed_on_the_device(self, session: td.Session) -> None:
        x = session.asarray(ONES, device="sim:0")
        for _ in range(4):
            x = session.xp.sqrt(x * 2)
            x.numpy()
        assert "through the host" not in rules(advice(session))

    def test_the_same_value_read_again(self, session: td.Session) -> None:
        x = session.asarray(np.ones((600, 600)))
        for _ in range(5):
            x.numpy()
        assert rules(advice(session))["read again"] == 4

    def test_each_value_read_once(self, session: td.Session) -> None:
        x = session.asarray(np.ones((600, 600)))
        for row in range(5):
            x += 1
            x.numpy()
            x[row].numpy()  # a part of the value is not the value
        assert "read again" not in rules(advice(session))


class TestUploads:
    def test_in_a_loop(self, session: td.Session) -> None:
        x = session.asarray(ONES, device="sim:0")
        for _ in range(10):
            x = x + session.asarray(ONES, device="sim:0")
        found = {one.rule: one for one in advice(session).findings}["uploads in a loop"]
        assert (found.count, found.nbytes) == (9, 9 * ONES.nbytes)
        assert len(found.lines) == 1

    def test_before_the_loop(self, session: td.Session) -> None:
        x, mask = (session.asarray(ONES, device="sim:0") for _ in range(2))
        for _ in range(10):
            x = x + mask
        assert "uploads in a loop" not in rules(advice(session))

    def test_of_what_is_written(self, session: td.Session) -> None:
        for _ in range(10):
            x = session.asarray(ONES, device="sim:0")
            x += 1
        assert "uploads in a loop" not in rules(advice(session))


class TestSmallOps:
    def test_a_row_that_repeats(self, session: td.Session) -> None:
        x = session.asarray(np.ones(4))
        for _ in range(200):
            y = x * 2
            x = y + 1
        (one,) = [each for each in advice(session).findings if each.rule == "small ops"]
        assert one.count == 200
        assert len(one.lines) == 2

    def test_the_row_as_a_routine(self, session: td.Session) -> None:
        @session.routine
        def step(x: Any) -> Any:
            y = x * 2
            return y + 1

        x = session.asarray(np.ones(4))
        for _ in range(200):
            x = step(x)
        assert "small ops" not in rules(advice(session))

    def test_ops_in_no_order(self, session: td.Session) -> None:
        x = session.asarray(np.ones(4))
        for number in range(200):
            x = x * 2 if number * number % 7 < 3 else x + 1
        assert "small ops" not in rules(advice(session))


class TestWaits:
    DEVICES = ("cpu:0", SIM | {"compute_delay": 0.002})

    def test_a_read_in_each_step(self, make_session: MakeSession) -> None:
        session = make_session(devices=list(self.DEVICES))
        x = session.asarray(ONES, device="sim:0")
        for _ in range(5):
            x = x * 1.5
            assert float(x.sum()) > 0
        found = {one.rule: one for one in advice(session).findings}["waits"]
        assert (found.count, found.devices) == (4, ("sim:0",))  # no transfer follows the last one
        assert found.cost >= 4_000_000  # the transfer of the sum, each time

    def test_a_read_at_the_end(self, make_session: MakeSession) -> None:
        session = make_session(devices=list(self.DEVICES))
        x = session.asarray(ONES, device="sim:0")
        for _ in range(5):
            x = x * 1.5
        assert float(x.sum()) > 0
        assert "waits" not in rules(advice(session))


class TestEvictions:
    def program(self, session: td.Session) -> Advice:
        values = [session.asarray(ONES, device="sim:0") for _ in range(5)]
        for number in range(3 * len(values)):
            values[number % len(values)] += 1
        return advice(session)

    def test_values_that_go_round(self, make_session: MakeSession) -> None:
        found = self.program(make_session(devices=["cpu:0", SIM | {"memory": 4 * ONES.nbytes}]))
        (one,) = [each for each in found.findings if each.rule == "evictions"]
        assert one.devices == ("sim:0",)
        assert ONES.nbytes <= one.nbytes <= 3 * ONES.nbytes
        assert one.count >= 5
        assert one.cost >= one.count * 1_000_000

    def test_values_that_fit(self, session: td.Session) -> None:
        assert "evictions" not in rules(self.program(session))


class TestSharing:
    @pytest.fixture
    def two(self, make_session: MakeSession) -> tuple[td.Session, td.Session]:
        name = "local:advice of two"
        first = make_session(name, devices=["cpu:0", "sim:0"])
        return first, make_session(name, devices=None)

    def run(self, first: td.Session, second: td.Session, size: int) -> Advice:
        x = first.asarray(np.ones((size, size)), device="sim:0")
        y = second.asarray(np.ones(200_000), device="sim:0")
        for _ in range(6):
            x = x @ x
            first.flush()
            for _ in range(3):
                y += 1
            second.flush()
        return advice(first, second)

    def test_a_session_of_long_ops(self, two: tuple[td.Session, td.Session]) -> None:
        ids = tuple(one.stats()["session"]["id"] for one in two)
        (one, *_) = [each for each in self.run(*two, 500).findings if each.rule == "held up"]
        assert one.sessions == ids
        assert one.ops == ("matmul",)

    def test_a_session_of_short_ops(self, two: tuple[td.Session, td.Session]) -> None:
        assert "matmul" not in {op for one in self.run(*two, 8).findings if one.rule == "held up" for op in one.ops}


class TestCompiling:
    """A simulated device reports when it would compile, which takes no time."""

    def program(self, session: td.Session) -> list[tuple[str, ...]]:
        x = session.asarray(ONES, device="sim:0")
        for _ in range(3):
            x = x * 2
        session.sync()
        trace = session.trace()
        me = max(record.session for record in trace.records)
        return [one.ops for one in kernels_compiled(Evidence(trace.only(Filter(session=me).select(trace.records))))]

    def test_at_the_first_call_and_no_later_one(self, make_session: MakeSession) -> None:
        name = "local:advice on kernels"
        session = make_session(name, devices=["cpu:0", {"name": "sim:0", "launches": True}])
        assert self.program(session) == [("multiply",)]
        assert self.program(make_session(name, devices=None)) == []
