"""Programs after their passes: applied once for all sessions, each with its own lines; and when passes are skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.programs.passes.table import PASS_NAMES, SEGMENT_PASSES, applied
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import Call
from tensord.vm.model.linked import SessionProgram
from tensord.vm.routines.compiling import passes
from tensord.vm.routines.compiling.passes import MAX_PROGRAM_STEPS, ImprovedPrograms, crowds, lacks

from ...bare_engine import Bare, Client
from ...programs import chain_of, link, run

ALL = frozenset(PASS_NAMES)
TWICE = """\
tensord program 1
parameter %0: float64[1] on d0
%1: float64[1] = add %0, %0 on d0 # 11
%2: float64[1] = add %0, %0 on d0 # 12
%3: bool[1] = isnan %0 on d0 # 13
%4: float64[] = sum %0 on d0 # 14
%5: bool[] = isfinite %4 on d0 # 15
%6: float64[1] = cond %5, %2 # 16
block
    parameter %0: float64[1] on d0
    %1: float64[1] = add %0, %0 on d0 # 17
    %2: float64[1] = add %0, %0 on d0 # 18
    %3: float64[1] = multiply %1, %2 on d0 # 19
    return %3
block
    parameter %0: float64[1] on d0
    %1: float64[1] = negative %0 on d0 # 20
    return %1
end
%7: float64[1] = subtract %1, %6 on d0 # 21
return %7
"""
PLAIN = TWICE[: TWICE.index("%4")] + "%4: float64[1] = subtract %1, %2 on d0 # 22\nreturn %4\n"


@pytest.fixture
def bare() -> Bare:
    return Bare()


def routine_of(client: Client, id_: int) -> SessionProgram:
    found = client.session.routines[id_]
    assert isinstance(found, SessionProgram)
    return found


def lines(program: Program) -> list[str]:
    return [step.location for step in program.steps]


class TestTheTable:
    def test_gives_each_session_its_own_lines_also_in_blocks(self) -> None:
        table = ImprovedPrograms()
        for more in (0, 40):
            text = TWICE
            for line in range(11, 22):
                text = text.replace(f"# {line}", f"# line {line + more}")
            found = table.of(Program.parse(text), ALL).program
            assert found is not None
            assert lines(found) == [f"line {n + more}" for n in (11, 14, 15, 16, 21)]
            assert [lines(block) for block in found.steps[3].blocks] == [
                [f"line {n + more}" for n in (17, 19)],
                [f"line {20 + more}"],
            ]

    def test_applies_passes_once_for_all_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table, count = ImprovedPrograms(), [0]

        def counted(program: Program, chosen: frozenset[str]) -> Any:
            count[0] += 1
            return applied(program, chosen)

        monkeypatch.setattr(passes, "applied", counted)
        first, second = (table.of(Program.parse(TWICE.replace("# 1", each)), ALL) for each in ("# 3", "# 4"))
        assert count == [1]
        assert first.program is not None
        assert second.program is not None
        assert first.program.digest == second.program.digest
        table.of(Program.parse(TWICE), ALL - {"dead_results"})
        assert count == [2]

    def test_knows_that_there_was_nothing_to_do(self) -> None:
        found = ImprovedPrograms().of(chain_of(3), ALL)
        assert found.program is None
        assert [(each.name, each.changed) for each in found.applied] == [(name, False) for name in PASS_NAMES[:5]]

    def test_leaves_programs_alone_without_a_pass_for_them_or_that_are_too_long(self) -> None:
        table, long = ImprovedPrograms(), chain_of(MAX_PROGRAM_STEPS + 1)
        assert table.of(Program.parse(TWICE), SEGMENT_PASSES) == (None, ())
        assert table.of(long, ALL) == (None, ())
        assert "digest" not in long.__dict__
        assert not table.cache

    def test_forgets_what_was_used_least_recently(self) -> None:
        table, programs = ImprovedPrograms(capacity=10), [chain_of(n) for n in (4, 5, 3)]
        for index in (0, 1, 0, 2):
            table.of(programs[index], ALL)
        assert [digest for digest, _ in table.cache] == [programs[0].digest, programs[2].digest]
        assert table.steps == 7


class TestARun:
    def test_is_that_of_the_program_after_its_passes(self, bare: Bare) -> None:
        client, program = bare.client(), Program.parse(PLAIN)
        routine, x = link(client, program), client.upload([2.0])
        for _ in range(3):
            (result,) = run(client, routine, program, [x])
            assert client.fetch(result) == [0.0]
        linked = routine_of(client, routine)
        assert (linked.program.digest, linked.runs) == (program.digest, 0)
        assert linked.improved is not None
        assert [step.op for step in linked.improved.program.steps] == ["add", "subtract"]

    def test_leaves_no_signature_behind_when_its_routine_is_released(self, bare: Bare) -> None:
        client, program = bare.client(), Program.parse(PLAIN)
        routine, x = link(client, program), client.upload([2.0])
        for inputs in ([x], [x]):
            run(client, routine, program, inputs)
        assert client.session.plans
        client.release(routine)
        assert not client.session.plans
        assert client.session.steps == 0

    def test_is_that_of_the_program_as_it_was_linked_on_an_operand_that_is_pending(self, bare: Bare) -> None:
        client, program = bare.client(), Program.parse(PLAIN)
        bare.device.streams[0].inline = False
        routine, x, mask = link(client, program), client.upload([2.0]), client.upload([1.0])
        flags = client.call("isfinite", mask)
        number = client.signature("masked_select", (((1,), "float64"), ((1,), "bool")))
        client.send(Call(number, (x, flags), (pending := client.new(),), 0, 1))
        (result,) = run(client, routine, program, [pending])
        assert client.fetch(result) == [0.0]
        linked = routine_of(client, routine)
        assert linked.improved is not None
        assert (linked.runs, linked.improved.runs) == (1, 0)

    def test_is_compiled_with_the_passes_of_its_routine(self, bare: Bare) -> None:
        client, program = bare.client(), chain_of(4)
        x = client.upload([2.0])
        arenas = []
        for chosen in (["memory_plan", "in_place"], ["memory_plan"], []):
            routine = link(client, program, passes=chosen)
            for _ in range(2):
                run(client, routine, program, [x])
            arenas.append(routine_of(client, routine).segments[0].recipe.arena)
        assert arenas == [64, 128, 192]


def test_an_op_without_a_kernel_on_its_device_is_found_in_blocks_too() -> None:
    program = Program.parse(TWICE)
    assert not lacks(program, [frozenset()])
    assert lacks(program, [frozenset({"multiply"})])
    assert lacks(program, [frozenset({"isnan"})])
    assert not lacks(program, [frozenset({"divide"})])


def test_moves_crowd_a_device_if_they_bring_more_than_half_of_its_memory() -> None:
    moves = "".join(f"%{n}: float64[8] = to_device %0 on d1\n" for n in (1, 2))
    program = Program.parse(f"tensord program 1\nparameter %0: float64[8] on d0\n{moves}print %1, %2\nreturn\n")
    assert crowds(program, [0, 255])
    assert not crowds(program, [0, 256])


def test_a_link_with_an_unknown_pass_is_an_error_of_each_run(bare: Bare) -> None:
    client, program = bare.client(), Program.parse(PLAIN)
    routine, x = link(client, program, passes=["fusion", "frobnicate"]), client.upload([2.0])
    for _ in range(2):
        (result,) = run(client, routine, program, [x])
        with pytest.raises(MetadataError, match=r"unknown pass 'frobnicate'; passes: dead_results"):
            client.fetch(result)
