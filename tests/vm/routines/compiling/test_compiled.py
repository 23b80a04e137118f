"""Compiled programs that sessions share: one for each digest and devices, bounded, without state of a session."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.messages import Location, Release
from tensord.vm.model.linked import SessionProgram
from tensord.vm.routines.compiling.compiled import MAX_PROGRAM_STEPS, Compiled, CompiledPrograms

from ...bare_engine import Bare, Client
from ...parts import Parts
from ...programs import LINE, accumulate, chain_of, link, run

CPU = ("cpu:0",)


class Compiler:
    """Counts the segments that an engine compiles."""

    def __init__(self, bare: Bare) -> None:
        segments = bare.engine.admission.routines.segments
        self.count = 0
        self.compile = segments.compile
        segments.compile = self

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self.compile(*arguments)


@pytest.fixture
def bare() -> Bare:
    return Bare()


def linked(client: Client, program: Program) -> int:
    routine = link(client, program)
    assert isinstance(client.session.routines[routine], SessionProgram)
    return routine


def value_of_run(client: Client, routine: int, program: Program, *inputs: int) -> list[float]:
    (result,) = run(client, routine, program, inputs)
    return client.fetch(result)


class TestAnotherSession:
    def test_compiles_nothing_and_its_first_run_is_whole(self, bare: Bare) -> None:
        compiler, program = Compiler(bare), chain_of(5)
        for number in range(4):
            client = bare.client()
            x, routine = client.upload([float(number)]), linked(client, program)
            for _ in range(3):
                assert value_of_run(client, routine, program, x) == [-float(number)]
            assert bool(client.session.plans) == (number == 0)  # whose first run was op by op
        assert compiler.count == 1

    def test_learns_its_own_lines(self, bare: Bare) -> None:
        builder = Builder()
        x = builder.parameter(Meta.of((1, 1), "float64"))
        (y,) = builder.op("cholesky", [x], location=LINE)
        program = builder.finish(list(builder.op("negative", [y], location=LINE)))
        for name in ("first.py:1", "second.py:1"):
            client = bare.client()
            client.send(Location(LINE, name))
            routine = linked(client, program)
            good, bad = client.upload([[4.0]]), client.upload([[-1.0]])
            for _ in range(2):
                assert value_of_run(client, routine, program, good) == [[-2.0]]
            with pytest.raises(KernelError) as caught:
                value_of_run(client, routine, program, bad)
            assert caught.value.location == name

    def test_goes_op_by_op_where_a_run_cannot_be_whole(self, bare: Bare) -> None:
        program = chain_of(4)
        for number in range(2):
            client = bare.client(bytes=10 if number else 1 << 20)  # too little for the inner values of a whole
            x, routine = client.upload([1.0]), linked(client, program)
            for _ in range(3):
                assert len(run(client, routine, program, (x,))) == 1
            assert bool(client.session.plans)

    def test_uses_what_its_maker_has_released(self, bare: Bare) -> None:
        compiler, program = Compiler(bare), chain_of(3)
        for _ in range(2):
            client = bare.client()
            x, routine = client.upload([1.0]), linked(client, program)
            for _ in range(2):
                assert value_of_run(client, routine, program, x) == [-1.0]
            client.release(x, routine)
            bare.engine.close(client.session)
            bare.drain()
        assert compiler.count == 1

    def test_shares_nothing_with_other_constants_or_devices(self) -> None:
        parts = Parts("cpu:0", "cpu:1", inline=True)
        compiler = Compiler(parts)
        for device, program in (("cpu:0", chain_of(3)), ("cpu:1", chain_of(3)), ("cpu:0", chain_of(5))):
            client = Client(parts, parts.session.limits)
            x, routine = client.upload([1.0]), link(client, program, devices=(device,))
            for _ in range(2):
                client.send(Release(run(client, routine, program, (x,))))
        assert compiler.count == 3


def test_a_program_that_was_cut_while_ops_were_refused_is_nobody_elses(bare: Bare) -> None:
    """A session without room for the signatures of a program must not make others run it op by op."""
    compiler, program = Compiler(bare), chain_of(6)
    poor = bare.client(operands=3)
    x, routine = poor.upload([1.0]), linked(poor, program)
    for _ in range(3):
        run(poor, routine, program, (x,))
    rich = bare.client()
    x, routine = rich.upload([1.0]), linked(rich, program)
    for _ in range(3):
        assert value_of_run(rich, routine, program, x) == [1.0]
    assert compiler.count == 1


def test_a_program_that_was_cut_before_its_ops_were_known_is_nobody_elses(bare: Bare) -> None:
    compiler, program, routines = Compiler(bare), chain_of(6), bare.engine.admission.routines
    for patience in (0, 1):
        routines.patience = patience
        client = bare.client()
        x, routine = client.upload([1.0]), linked(client, program)
        for _ in range(3):
            assert value_of_run(client, routine, program, x) == [1.0]
        assert compiler.count == patience


def test_recipes_of_a_program_that_was_cut_otherwise_are_not_taken(bare: Bare) -> None:
    client, program = bare.client(), chain_of(6)
    x, routine = client.upload([1.0]), linked(client, program)
    for _ in range(2):
        value_of_run(client, routine, program, x)
    segments, found = bare.engine.admission.routines.segments, client.session.routines[routine]
    assert isinstance(found, SessionProgram)
    found.pieces = [range(4), range(4, 6)]
    recipe = segments.recipe(client.session, found, range(4))
    assert recipe is not None
    assert recipe.steps == range(4)


class TestTheTable:
    def test_forgets_what_was_used_least_recently(self) -> None:
        table, programs = CompiledPrograms(capacity=10), [chain_of(n) for n in (4, 5, 3)]
        first, second = (table.of(program, CPU) for program in programs[:2])
        assert table.of(programs[0], CPU) is first
        table.of(programs[2], CPU)  # 12 steps
        assert table.of(programs[0], CPU) is first
        assert table.steps == 7
        assert table.of(programs[1], CPU) is not second

    def test_knows_programs_by_their_digest_without_their_lines(self) -> None:
        table = CompiledPrograms()
        text = str(chain_of(2))
        assert table.of(Program.parse(text), CPU) is table.of(Program.parse(text.replace("# 1", "# 2")), CPU)
        assert table.of(chain_of(2), CPU) is not table.of(chain_of(2), ("cpu:1",))
        assert table.of(accumulate(), CPU) is not table.of(chain_of(2), CPU)

    def test_keeps_nothing_of_what_is_too_large(self) -> None:
        program = chain_of(MAX_PROGRAM_STEPS + 1)
        table = CompiledPrograms()
        assert table.of(program, CPU) is not table.of(program, CPU)
        assert "digest" not in program.__dict__  # the digest would take long to make
        assert not table.cache

    def test_counts_the_texts_of_prints_too(self) -> None:
        builder = Builder()
        builder.print(["x" * 60_000], [])
        table = CompiledPrograms()
        table.of(builder.finish([]), CPU)
        assert table.steps > 200

    def test_what_is_half_compiled_is_not_whole(self) -> None:
        compiled = Compiled(4)
        assert not compiled.whole()
        compiled.pieces = [range(2), range(2, 3), range(3, 6)]
        compiled.recipes = {0: None}
        assert not compiled.whole()
        compiled.recipes[3] = None
        assert compiled.whole()
