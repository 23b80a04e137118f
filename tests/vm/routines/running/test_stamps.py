"""Times of the calls inside runs."""

from __future__ import annotations

from operator import length_hint
from typing import Any
from unittest.mock import patch

import pytest

from tensord.interpreter.errors import KernelError, ProtocolError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.messages import Query
from tensord.vm.process import MachineProcess
from tensord.vm.reporting.questions import MachineFacts, answer
from tensord.vm.routines.running.replay import Stamps, timed
from tensord.vm.tracing import ring
from tensord.vm.tracing.record import Record

from ....each_case import each_case
from ...bare_engine import Bare, Client
from ...programs import chain_of, link, run
from ...tracing.test_known_routines import repeated, trace_of


@pytest.fixture(params=["at once", "in slices", "on a stream"])
def bare(request) -> Bare:
    """An engine for each way of running segments."""
    bare = Bare()
    segments: Any = bare.engine.admission.routines.segments
    segments.find_fusions = lambda _program, _terms: []
    if request.param != "at once":
        segments.at_once.limit = 0
    if request.param == "on a stream":
        bare.engine.devices["cpu:0"].inline_work = 0
    return bare


def asks(client: Client, every: Any, *, everywhere: bool = False) -> Any:
    return answer(
        client.bare.engine,
        client.session,
        "detail",
        (every, everywhere),
        MachineFacts(lambda *_: None, MachineProcess()),  # type: ignore[arg-type]
    )


def stamps_of(bare: Bare) -> list[int]:
    """How many times each run's record has."""
    return [len(record.stamps) for record in runs_in(bare)]


def runs_in(bare: Bare) -> list[Record]:
    return [record for record in trace_of(bare).records if record.part]


class TestTimed:
    def test_each_call_is_between_two_times_and_comes_in_order(self):
        clock = iter(range(100))
        stamps = Stamps(lambda: next(clock))
        assert list(timed("abc", stamps)) == ["a", "b", "c"]
        assert stamps.times == [0, 1, 2, 3, 4, 5]
        assert list(timed([], stamps)) == []
        assert len(stamps.times) == 6

    def test_it_knows_how_many_are_left(self):
        rest = timed("abc", Stamps(lambda: 0))
        assert length_hint(rest) == 3
        assert [length_hint(rest) for _ in rest] == [2, 1, 0]


class TestWhich:
    def test_without_being_asked_for_no_run_is_timed(self, bare):
        repeated(bare.client(), chain_of(3), 4)
        assert stamps_of(bare) == [0, 0, 0]

    def test_a_session_has_every_nth_of_its_runs_timed(self, bare):
        client, other = bare.client(), bare.client()
        assert asks(client, 2) == 2
        for each in (client, other):
            repeated(each, chain_of(3), 6)
        assert stamps_of(bare) == [0, 6, 0, 6, 0] + [0] * 6

    def test_one_may_ask_for_all_sessions_as_long_as_it_lives(self, bare):
        looker, other, client = bare.client(), bare.client(), bare.client()
        asks(looker, 1, everywhere=True)
        asks(other, 3, everywhere=True)
        routine, program = repeated(client, chain_of(2), 2), chain_of(2)
        x = client.upload([1.0])
        for session in (None, looker.session, other.session):
            if session is not None:
                bare.engine.close(session)
            for _ in range(3):
                run(client, routine, program, (x,))
                bare.drain()
        assert stamps_of(bare) == [4] + [4] * 3 + [0, 0, 4] + [0] * 3
        asks(client, 0, everywhere=True)
        assert bare.engine.ring.details.every == 0

    @each_case("every", [-1, "1", None, 1.5, True])
    def test_how_many_is_checked(self, bare, every):
        with pytest.raises(ProtocolError, match=r"every is .*, not a natural number"):
            asks(bare.client(), every)

    def test_a_machine_without_a_trace_says_so(self):
        with pytest.raises(ProtocolError, match="does not trace"):
            asks(Bare(tracing=False).client(), 1)

    def test_it_is_a_question_like_others(self):
        bare = Bare()
        bare.engine.admission.answer = lambda session, what, given: answer(
            bare.engine,
            session,
            what,
            given,
            MachineFacts(lambda *_: None, MachineProcess()),  # type: ignore[arg-type]
        )
        client = bare.client()
        assert client.ask(Query("detail", (4, False), 0)) == 4
        assert client.session.detail == 4


class TestTimes:
    def test_calls_follow_each_other_within_the_run(self, bare):
        client = bare.client()
        asks(client, 1)
        repeated(client, chain_of(4), 2)
        (found,) = runs_in(bare)
        times = (found.started, *found.stamps, found.finished)
        assert len(times) == 10
        assert list(times) == sorted(times)
        assert trace_of(bare).verify() == []

    def test_a_run_in_several_slices_has_the_times_of_all_its_calls(self, bare):
        meta = Meta.of((150_000,), "float64")
        client, program = bare.client(), chain_of(8, meta=meta)
        asks(client, 1)
        routine = link(client, program)
        client.send(client.upload_message([0.0] * 150_000))
        x = client.ids
        for _ in range(2):
            run(client, routine, program, (x,))
            bare.drain()
        assert stamps_of(bare) == [16]
        assert trace_of(bare).verify() == []

    def test_a_run_that_fails_has_the_same_results_and_no_times(self, bare):
        builder = Builder()
        x = builder.parameter(Meta.of((1, 1), "float64"))
        (y,) = builder.op("negative", [x])
        (z,) = builder.op("inv", [y])
        (z,) = builder.op("square", [z])
        program: Program = builder.finish([z, *builder.op("exp", [x])])
        client = bare.client()
        asks(client, 1)
        routine, good, singular = link(client, program), client.upload([[1.0]]), client.upload([[0.0]])
        for each in (good, good, singular):
            failed, healthy = run(client, routine, program, (each,))
            bare.drain()
        assert client.fetch(healthy) == [[1.0]]
        with pytest.raises(KernelError, match="inv: LinAlgError"):
            client.fetch(failed)
        assert stamps_of(bare) == [8, 0]
        good, bad = runs_in(bare)
        assert (good.status, good.error, bad.status) == ("DONE", "", "DONE")
        assert bad.error.startswith("in part: KernelValueError: inv: LinAlgError: ")

    def test_as_many_times_are_kept_as_there_is_room_for(self, bare):
        with patch.object(ring, "STAMPS", 14):
            client = bare.client()
            asks(client, 1)
            repeated(client, chain_of(3), 5)
        assert stamps_of(bare) == [0, 0, 6, 6]
