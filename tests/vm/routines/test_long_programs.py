"""Long programs: the work for one in a single pass is bounded, so that other sessions are served meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensord.interpreter.programs import fusion
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import Atomic, Call, encode_message
from tensord.vm.model.session import rest_of_run
from tensord.vm.routines.compiling.recipe import Compiler
from tensord.vm.routines.compiling.segments import MAX_SEGMENT_STEPS, SLICE, cutting

from ..bare_engine import Bare
from ..programs import ONE, chain_of, link, run, run_message
from .compiled_programs import pieces_of

COUNT = 3 * MAX_SEGMENT_STEPS + 7


class Counted:
    """An engine that has run a program op by op, and how many segments it compiles in each pass from then on; `steps`:
    of all of these."""

    def __init__(self, program: Program) -> None:
        self.bare = Bare()
        self.client = self.bare.client()
        self.program = program
        self.x = self.client.upload([1.0])
        self.routine = link(self.client, program)
        run(self.client, self.routine, program, [self.x])
        self.segments: Any = self.bare.engine.admission.routines.segments
        self.compiled = self.steps = 0
        self.compile: Callable[..., Any] = self.segments.compile
        self.segments.compile = self.counting

    def counting(self, *arguments: Any) -> Any:
        self.compiled += 1
        self.steps += len(arguments[1])
        return self.compile(*arguments)

    def begin(self) -> int:
        """A run is received; the id of its result."""
        message = run_message(self.client, self.routine, self.program, [self.x], (), ())
        self.bare.engine.receive(self.client.session, [encode_message(message)])
        (result,) = message.outputs
        return int(result)

    def passes(self) -> list[int]:
        """Drive to the end; how many segments each pass has compiled."""
        found: list[int] = []
        while True:
            before = self.compiled
            if not self.bare.engine.schedule():
                return found
            found.append(self.compiled - before)


def test_one_segment_is_compiled_in_a_pass() -> None:
    it = Counted(chain_of(COUNT))
    result = it.begin()
    passes = it.passes()
    assert (max(passes), sum(passes)) == (1, 4)
    assert it.client.fetch(result) == [1.0 if COUNT % 2 == 0 else -1.0]
    it.begin()
    assert sum(it.passes()) == 0


def test_a_turn_ends_behind_each_segment_that_is_compiled() -> None:
    """The daemon takes the messages of a run in this way, with other sessions to serve in between."""
    it = Counted(chain_of(COUNT))
    result = it.begin()
    engine, session = it.bare.engine, it.client.session
    engine.schedule()
    while session.in_run():
        before = it.compiled
        engine.take(session, rest_of_run(session, 1 << 20))
        assert it.compiled <= before + 1
    assert it.compiled == 4
    assert it.client.fetch(result) == [1.0 if COUNT % 2 == 0 else -1.0]


def test_a_group_has_no_pause_so_little_of_a_run_in_it_is_compiled() -> None:
    it = Counted(chain_of(COUNT))
    x, expected = it.x, [1.0]
    steps = []
    for _ in range(6):
        before = it.steps
        runs = []
        for _ in range(2):
            runs.append(run_message(it.client, it.routine, it.program, [x], (), ()))
            (x,) = runs[-1].outputs
        number = it.client.signature("negative", ((ONE.shape, ONE.dtype.name),))
        behind = Call(number, (x,), (it.client.new(),), 0, 1)
        it.client.send(Atomic([*map(encode_message, runs), encode_message(behind)]))
        x, expected = it.client.ids, [-value for value in expected]  # two runs, and one more op
        assert it.client.fetch(x) == expected
        steps.append(it.steps - before)
    # The first group is cut.
    assert steps == [COUNT % MAX_SEGMENT_STEPS, *[MAX_SEGMENT_STEPS] * 3, 0, 0]


def test_a_run_behind_a_group_compiles_what_that_has_left() -> None:
    it = Counted(chain_of(COUNT))
    message = run_message(it.client, it.routine, it.program, [it.x], (), ())
    it.client.send(Atomic([encode_message(message)]))
    before = it.steps
    result = it.begin()
    assert max(it.passes()) == 1
    assert (before, it.steps) == (COUNT % MAX_SEGMENT_STEPS, COUNT)
    assert it.client.fetch(result) == [1.0 if COUNT % 2 == 0 else -1.0]


def test_many_short_runs_of_a_group_are_not_all_compiled_in_it() -> None:
    it = Counted(chain_of(1))
    programs = [chain_of(100 + n) for n in range(10)]
    routines = [link(it.client, program) for program in programs]
    steps = []
    for _ in range(5):
        before = it.steps
        runs = [run_message(it.client, *pair, [it.x]) for pair in zip(routines, programs, strict=True)]
        it.client.send(Atomic([encode_message(message) for message in runs]))
        assert [it.client.fetch(message.outputs[0]) for message in runs] == [[1.0], [-1.0]] * 5
        steps.append(it.steps - before)
    assert steps[0] == 0  # the first runs are op by op
    assert max(steps) <= MAX_SEGMENT_STEPS
    assert it.steps == sum(len(program.steps) for program in programs)


def test_a_program_is_cut_in_slices() -> None:
    program, looked_at = chain_of(2 * SLICE + 5), [0]

    def work(_position: int) -> int:
        looked_at[0] += 1
        return 10

    before, most, found = 0, 0, []
    for pieces in cutting(program, work):
        most, before = max(most, looked_at[0] - before), looked_at[0]
        found += pieces
    assert most <= SLICE
    assert found == pieces_of(program, lambda _: 10)
    assert [position for piece in found for position in piece] == [*range(len(program.steps))]


def test_fusions_are_found_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "STEPS_PER_SLICE", 10)
    program = chain_of(55)
    slices = list(fusion.finding_fusions(program, least=1))
    assert len(slices) > 55 // 10
    assert slices[:-1] == [[]] * (len(slices) - 1)
    assert fusion.find_fusions(program, least=1) == slices[-1]
    assert [position for each in slices[-1] for position in each.steps] == [*range(55)]


def test_a_value_does_not_look_at_all_that_lay_in_its_memory_before() -> None:
    """Otherwise the time to compile a chain would grow with the square of its length."""
    it = Counted(chain_of(MAX_SEGMENT_STEPS))
    compilers: list[Compiler] = []

    def compiling(program: Any, piece: Any, plans: Any, _fusions: Any, _passes: Any) -> Any:
        compilers.append(Compiler(program, piece, plans, ()))
        return compilers[-1].compile()

    it.segments.compile = compiling
    it.begin()
    it.passes()
    (compiler,) = compilers
    assert max(map(len, compiler.held.values())) <= 2
