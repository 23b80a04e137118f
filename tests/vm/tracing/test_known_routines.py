"""Routines and their runs in a trace."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import Release, encode_message
from tensord.vm.reporting.live_trace import trace_parts
from tensord.vm.reporting.locations import LocationTexts
from tensord.vm.tracing import known_routines
from tensord.vm.tracing.analysis.files.parts import RingSnapshot, read_parts
from tensord.vm.tracing.analysis.trace import Trace

from ..bare_engine import Bare, Client
from ..programs import accumulate, chain_of, link, run, run_message


@pytest.fixture
def bare() -> Bare:
    return Bare()


def picture(bare: Bare, since: int = 0, **options: Any) -> RingSnapshot:
    return read_parts(trace_parts(bare.engine, LocationTexts(bare.engine), since, **options))


def trace_of(bare: Bare) -> Trace:
    return picture(bare).trace(Trace)


def runs_of(trace: Trace, op: str) -> list[int]:
    """The runs of an op's instructions, by the first instruction of each run; 0 for none."""
    runs = [trace.run_of(record) for record in trace.records if record.op == op]
    return [0 if found is None else found.first for found in runs]


def repeated(client: Client, program: Program, times: int, name: str = "step") -> int:
    """A routine that has run so often on a new tensor."""
    routine, x = link(client, program, name=name), client.upload([1.0])
    for _ in range(times):
        client.send(Release(run(client, routine, program, (x,))))
    client.bare.drain()
    return routine


class TestRecords:
    def test_a_segment_says_whose_it_is_and_which_steps_it_has(self, bare):
        program = chain_of(3)
        repeated(bare.client(), program, 2)
        (found,) = [record for record in trace_of(bare).records if record.opcode == "RunRoutine"]
        assert (found.op, found.attributes) == ("run step", f"{program.digest[:12]}, steps 0-2 of 3")
        assert found.part is not None
        assert found.part[1:] == (0, 2)

    def test_the_ops_of_a_run_belong_to_it_and_others_do_not(self, bare):
        client = bare.client()
        repeated(client, chain_of(3), 1)
        x = client.upload([1.0])
        client.call("negative", x)
        trace = trace_of(bare)
        first = next(record.id for record in trace.records if record.op == "negative")
        assert runs_of(trace, "negative") == [first] * 3 + [0]
        (known,) = trace.runs
        assert (known.last - known.first, known.location) == (2, "user.py:1")

    def test_ops_of_another_session_in_between_do_not_belong_to_it(self, bare, monkeypatch):
        monkeypatch.setattr("tensord.vm.engine.WINDOW", 1)
        one, other = bare.client(), bare.client()
        program = chain_of(4)
        routine, x = link(one, program), one.upload([1.0])
        number, y = other.signature("abs", (((1,), "float64"),)), other.upload([1.0])
        bare.engine.receive(one.session, [encode_message(run_message(one, routine, program, (x,)))])
        bare.engine.schedule()
        bare.engine.schedule()
        bare.engine.take(other.session, [[0, number, (y,), (other.new(),), 0, 1]])
        bare.drain()
        trace = trace_of(bare)
        (known,) = trace.runs
        (between,) = [record for record in trace.records if record.op == "abs"]
        assert known.first < between.id < known.last
        assert runs_of(trace, "abs") == [0]
        assert runs_of(trace, "negative") == [known.first] * 4

    def test_a_run_that_is_still_admitted_is_there(self, bare, monkeypatch):
        monkeypatch.setattr("tensord.vm.engine.WINDOW", 1)
        client, program = bare.client(), chain_of(4)
        routine, x = link(client, program), client.upload([1.0])
        bare.engine.receive(client.session, [encode_message(run_message(client, routine, program, (x,)))])
        for _ in range(3):
            bare.engine.schedule()
        trace = trace_of(bare)
        (known,) = trace.runs
        assert known.last == 0
        found = runs_of(trace, "negative")
        assert 0 < len(found) < 4
        assert set(found) == {known.first}
        bare.engine.close(client.session)  # the run ends where it is
        bare.drain()
        trace = trace_of(bare)
        (known,) = trace.runs
        assert known.last >= max(record.id for record in trace.records if record.op == "negative") > 0

    def test_segments_and_steps_of_a_run_are_one_run(self, bare):
        client, program = bare.client(), accumulate()
        routine = link(client, program, [client.upload([1.0])], name="mixed")
        x, y = client.upload([1.0]), client.upload([2.0])
        client.send([7, 9])
        for _ in range(2):
            client.requests += 1
            client.send(Release(run(client, routine, program, (x, y), (2.0,), ((9, None, client.requests),))))
            bare.drain()
        trace = trace_of(bare)
        parts = [record for record in trace.records if record.part]
        assert [record.part[1:] for record in parts if record.part] == [(0, 1)]
        run_of_part = trace.run_of(parts[0])
        assert run_of_part is not None
        assert run_of_part.last > run_of_part.first
        assert len(trace.runs) == 2

    def test_without_a_trace_nothing_is_kept(self):
        bare = Bare(tracing=False)
        repeated(bare.client(), chain_of(3), 3)
        routines = bare.engine.ring.routines
        assert (routines.known, len(routines.runs)) == ({}, 0)


class TestPrograms:
    def test_the_program_and_what_it_was_compiled_to_are_in_the_trace(self, bare):
        program = chain_of(3)
        repeated(bare.client(), program, 2)
        (known,) = trace_of(bare).routines.values()
        assert (known.name, known.digest, known.devices) == ("step", program.digest, ("cpu:0",))
        assert Program.parse(known.text) == program
        assert known.text.count("# user.py:1") == 3
        (segment,) = known.segments
        assert (segment.first, segment.last, segment.reads, segment.written, segment.made) == (0, 2, (0,), (), (3,))
        assert [call.op for call in segment.calls] == ["negative"] * 3

    @pytest.mark.parametrize("location", [None, -1, 2**70, "user.py:1"])
    def test_whatever_a_client_says_of_a_steps_line_does_no_harm(self, bare, location):
        client, program = bare.client(), chain_of(2)
        for step in program.steps:
            program.steps = (*program.steps[1:], step._replace(location=location))
        repeated(client, program, 2)
        (known,) = trace_of(bare).routines.values()
        assert Program.parse(known.text) == program
        assert "#" not in known.text

    def test_a_trace_of_what_is_new_has_the_routines_that_are_new(self, bare):
        client = bare.client()
        repeated(client, chain_of(2), 1)
        first = picture(bare)
        assert len(first.routines) == len(first.runs) == 1
        second = picture(bare, first.tick, routines=first.tick)
        assert second.routines == second.runs == ()
        repeated(client, chain_of(3), 1)
        third = picture(bare, second.tick, routines=second.tick)
        assert [known.number for known in third.routines] == [run.routine for run in third.runs] == [2]
        assert len(picture(bare, third.tick, routines=0).routines) == 2

    def test_the_programs_of_routines_that_are_gone_are_bounded(self, bare, monkeypatch):
        monkeypatch.setattr(known_routines, "REMEMBERED", 7)
        client = bare.client()
        kept = repeated(client, chain_of(3), 1)
        for _ in range(5):
            client.send(Release((repeated(client, chain_of(3), 1),)))
        repeated(client, chain_of(3), 1)
        found = bare.engine.ring.routines.known
        assert len(found) == 2 + 7 // 3  # the live ones, and the newest of the others
        assert client.session.routines[kept].number in found

    def test_with_a_session_its_routines_are_gone(self, bare, monkeypatch):
        monkeypatch.setattr(known_routines, "REMEMBERED", 7)
        client, other = bare.client(), bare.client()
        for _ in range(5):
            repeated(client, chain_of(3), 1)
        found = bare.engine.ring.routines.known
        assert len(found) == 5
        bare.engine.close(client.session)
        repeated(other, chain_of(3), 1)
        assert len(found) == 1 + 7 // 3
        assert len(trace_of(bare).routines) == len(found)

    def test_runs_are_bounded_as_the_records_are(self):
        bare = Bare(trace_capacity=4)
        client, program = bare.client(), chain_of(2)
        bare.engine.admission.routines.patience = 1 << 30
        repeated(client, program, 9)
        assert len(bare.engine.ring.routines.runs) == 4


def test_programs_without_steps_are_forgotten_too(bare, monkeypatch):
    monkeypatch.setattr(known_routines, "REMEMBERED", 5)
    client, shared = bare.client(), bare.engine.admission.routines.segments.shared
    shared.capacity = 5
    for value in range(20):
        builder = Builder()
        builder.number("int", "constant", value=value)
        program = builder.finish([])
        routine = link(client, program)
        run(client, routine, program)
        client.release(routine)
    assert len(bare.engine.ring.routines.known) == 5
    assert len(shared.cache) == 5
