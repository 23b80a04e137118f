"""Compiled segments, checked against their programs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.types.meta import Meta
from tensord.vm.routines.compiling import inside, liveness, recipe
from tensord.vm.routines.compiling.recipe import BufferSlice, Compiler
from tensord.vm.tracing.analysis.checks.segment_check import check_segment
from tensord.vm.tracing.analysis.checks.views import VIEWS
from tensord.vm.tracing.analysis.files.parts import SEGMENT
from tensord.vm.tracing.record import ARENA, SegmentRecord

from .....each_case import each_case
from ....routines.compiled_programs import compiled, random_local

SMALL = Meta.of((4, 4), "float64")
SEEDS = 30  # programs, one of which shows each mistake


def wrong(program: Program, *, fusions: bool = True) -> list[str]:
    """The mistakes in the segments of a program."""
    return list(chain.from_iterable(check_segment(program, each) for each in compiled(program, fusions=fusions)))


@each_case("fusions", [True, False])
@each_case("seed", range(12))
def test_random_programs_are_compiled_to_what_they_say(seed, fusions):
    assert wrong(random_local(seed), fusions=fusions) == []


def test_a_view_of_a_value_without_dimensions_is_that_value():
    builder = Builder()
    builder.parameter(Meta.of((), "float64"))
    (flipped,) = builder.op("flip", [0])
    (made,) = builder.op("max", [flipped])
    assert wrong(builder.finish([*builder.op("negative", [made])])) == []


# -- mistakes of the compiler ------------------------------------------------------------------------------------------


def frees_early(monkeypatch: Any) -> None:
    """A value's bytes serve others from the step on that uses it last."""
    begin = Compiler.__init__

    def early(self: Any, *given: Any) -> None:
        begin(self, *given)
        self.uses = {value: last if last >= len(self.program.steps) else last - 1 for value, last in self.uses.items()}

    monkeypatch.setattr(Compiler, "__init__", early)


def forgets_uses_of_views(monkeypatch: Any) -> None:
    """Free a block of memory after the last use of its value, although views of the value are still used."""
    enter = Compiler.enter

    def forgetful(self: Any, value: int, buffer_slice: BufferSlice) -> None:
        if value in self.bases or buffer_slice.strides is not None:
            self.buffer_slices[value] = buffer_slice
        else:
            enter(self, value, buffer_slice)

    monkeypatch.setattr(Compiler, "enter", forgetful)


def moves_views(monkeypatch: Any) -> None:
    """A view lies an element further."""
    lay = Compiler.lay_view

    def moved(self: Any, value: int, base: int) -> None:
        lay(self, value, base)
        old = self.buffer_slices[value]
        self.buffer_slices[value] = old._replace(offset=old.offset + old.meta.dtype.itemsize)

    monkeypatch.setattr(Compiler, "lay_view", moved)


def packs_views(monkeypatch: Any) -> None:
    """A view is taken for packed."""
    lay = Compiler.lay_view

    def packed(self: Any, value: int, base: int) -> None:
        lay(self, value, base)
        self.buffer_slices[value] = self.buffer_slices[value]._replace(strides=None)

    monkeypatch.setattr(Compiler, "lay_view", packed)


def forgets_what_views_are_of(monkeypatch: Any) -> None:
    """The base of a view that leaves the segment is not made for later segments."""
    real = liveness.outside_of

    def forgetful(program: Any, steps: Any, layouts: Any) -> Any:
        reads, written, made, entering = real(program, steps, layouts)
        roots = {program.variables[layout.root] for layout in layouts.values()}
        return reads, written, tuple(variable for variable in made if variable not in roots), entering

    monkeypatch.setattr(recipe, "outside_of", forgetful)


def forwards_what_lives(monkeypatch: Any) -> None:
    """A result is written over an operand that is used later."""
    new = Compiler.new_slice

    def forwarded(self: Any, value: int, position: int, plan: Any, reads: Any) -> BufferSlice:
        uses = self.uses
        self.uses = {each: position if each in reads else last for each, last in uses.items()}
        try:
            return new(self, value, position, plan, reads)
        finally:
            self.uses = uses

    monkeypatch.setattr(Compiler, "new_slice", forwarded)


def shares_nothing(monkeypatch: Any) -> None:
    """Write to the memory of the overwritten value, although other values lie there."""
    monkeypatch.setattr(Compiler, "is_shared", lambda *_: False)


def forwards_whatever_the_op(monkeypatch: Any) -> None:
    """A result is written over an operand of an op that does not go element by element."""
    new = Compiler.new_slice

    def forwarded(self: Any, value: int, position: int, plan: Any, reads: Any) -> BufferSlice:
        operands = self.program.steps[position].operands
        before = plan.donatable_inputs
        plan.donatable_inputs = tuple(n for n, operand in enumerate(operands) if operand >= 0)
        try:
            return new(self, value, position, plan, reads)
        finally:
            plan.donatable_inputs = before

    monkeypatch.setattr(Compiler, "new_slice", forwarded)


def forgets_to_fill(monkeypatch: Any) -> None:
    """Do not copy a partly written value before the write."""
    step = Compiler.step

    def hasty(self: Any, position: int, plan: Any) -> Any:
        found = step(self, position, plan)
        return found[1:] if found is not None and len(found) == 2 else found

    monkeypatch.setattr(Compiler, "step", hasty)


def runs_fusions_early(monkeypatch: Any) -> None:
    """A fusion runs one call earlier than at its last step."""
    compile_ = Compiler.compile

    def early(self: Any) -> Any:
        recipe = compile_(self)
        if recipe is None:
            return None
        calls = list(recipe.calls)
        for index, call in enumerate(calls):
            if index and call.step in self.fusions_at:
                calls[index - 1 : index + 1] = [call, calls[index - 1]]
        return recipe._replace(calls=tuple(calls))

    monkeypatch.setattr(Compiler, "compile", early)


def counts_too_little(monkeypatch: Any) -> None:
    """The arena has half of its bytes."""
    compile_ = Compiler.compile

    def small(self: Any) -> Any:
        recipe = compile_(self)
        return None if recipe is None else recipe._replace(arena=recipe.arena // 2)

    monkeypatch.setattr(Compiler, "compile", small)


def loses_dependences(monkeypatch: Any) -> None:
    """A result fails with its first operand alone."""
    record = inside.call_record

    def lost(op: str, steps: Any, given: Any, made: Any, call: Any) -> Any:
        return record(op, steps, given, made, call._replace(reads=tuple(reads[:1] for reads in call.reads)))

    monkeypatch.setattr(inside, "call_record", lost)


MISTAKES: dict[Callable[[Any], None], str] = {
    frees_early: "is written over %",
    forgets_uses_of_views: "it reads %",
    moves_views: "a view of %",
    packs_views: "a view of %",
    forgets_what_views_are_of: "is needed after the segment",
    forwards_what_lives: "it reads %",
    shares_nothing: "it reads %",
    forwards_whatever_the_op: "is written over %",
    forgets_to_fill: "it reads %",
    runs_fusions_early: "it reads %",
    counts_too_little: "bytes",
    loses_dependences: "but depends on %",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_of_the_compiler_is_found(monkeypatch, mistake):
    mistake(monkeypatch)
    for seed in range(SEEDS):
        with contextlib.suppress(Exception):  # the compiler may trip over its own mistake
            if any(MISTAKES[mistake] in problem for problem in wrong(random_local(seed))):
                return
    pytest.fail("no program shows it")


# -- mistakes in a segment ---------------------------------------------------------------------------------------------


def example() -> Program:
    """y = (x.T @ x + 1) * 2, x += y; returns the sum of y."""
    builder = Builder()
    x = builder.parameter(SMALL)
    one = ~builder.number("int", "constant", value=1)
    (turned,) = builder.op("transpose", [x])
    (y,) = builder.op("matmul", [turned, x])
    (y,) = builder.op("add", [y, one])
    (y,) = builder.op("multiply", [y, one])
    builder.op("add", [x, y], into=[x])
    return builder.finish(builder.op("sum", [y]))


def spoilt(segment: SegmentRecord) -> Iterator[tuple[str, SegmentRecord]]:
    """Segments with one mistake each, and the message about it."""
    calls = segment.calls
    matmul, add, multiply, update, total = calls

    def with_calls(*changed: Any) -> SegmentRecord:
        return segment._replace(calls=changed)

    yield "step 5 sum is never computed", with_calls(*calls[:-1])
    yield "step 2 is computed twice", with_calls(matmul, add, add, *calls[2:])
    yield "its kernel is that of op divide", with_calls(matmul, add._replace(op="divide"), *calls[2:])
    yield "step 3 multiply: it reads %3 in the arena at 0, which holds nothing", with_calls(multiply, *calls)
    yield "step 2 add: it reads %2 in the arena", with_calls(add, matmul, *calls[2:])
    swapped = matmul._replace(takes=matmul.takes[::-1])
    yield "it reads %0, %1, but the step reads %1, %0", with_calls(swapped, *calls[1:])
    yield "it reads %5, but the step reads %4", with_calls(*calls[:4], given(total, 5))
    yield "%5 is float64[4, 4], but is treated as float64[]", with_calls(*calls[:3], elsewhere(update, shape=()), total)
    yield "which is not its memory", with_calls(*calls[:3], elsewhere(update, slot=1), total)
    yield "holds %0 at the end, not %5", with_calls(*calls[:3], elsewhere(update, slot=ARENA), total)
    yield (
        "takes over the errors of %4, but depends on %0, %4",
        with_calls(*calls[:3], update._replace(depends=((4,),)), total),
    )
    yield "over an operand that is only read", segment._replace(reads=(0,), written=())
    yield "%6 is needed after the segment", segment._replace(made=())
    yield "it refers to something that its program does not have", segment._replace(reads=(99,))


@each_case("seed", range(2))
def test_a_segment_that_no_machine_has_made_is_wrong_and_nothing_worse(seed):
    rng, program = random.Random(seed), random_local(seed)
    for segment in compiled(program):
        for _ in range(50):
            plain = as_lists(segment)
            spoil(rng, plain)
            for problem in check_segment(program, SEGMENT("segment", plain)):
                assert isinstance(problem, str)


def as_lists(value: Any) -> Any:
    return [as_lists(each) for each in value] if isinstance(value, tuple) else value


def spoil(rng: random.Random, plain: list[Any]) -> None:
    """Change a natural number, at any depth."""
    while True:
        index = rng.randrange(len(plain)) if plain else -1
        if index < 0:
            return
        if isinstance(plain[index], list):
            plain = plain[index]
        else:
            if type(plain[index]) is int and plain[index] >= 0:
                plain[index] = rng.choice((0, 1, 2, 3, 8, 64, 999, 2**40, 2**62))
            return


def given(call: Any, value: int) -> Any:
    """The call, given another value in the same memory."""
    return call._replace(takes=(call.takes[0]._replace(value=value),))


def elsewhere(call: Any, **changed: Any) -> Any:
    """The call, with its result in other memory."""
    (gives,) = call.gives
    return call._replace(gives=(gives._replace(buffer_slice=gives.buffer_slice._replace(**changed)),))


def test_a_fusion_reduces_rows_and_nothing_else():
    by_rows, along_columns = (reducing(axis) for axis in (-1, 0))
    (segment,) = compiled(by_rows)
    assert len(segment.calls) == 1
    assert check_segment(by_rows, segment) == []
    assert any("row by row" in problem for problem in check_segment(along_columns, segment))


def reducing(axis: int) -> Program:
    """The largest element of each row, or of each column, and all squares."""
    builder = Builder()
    x = builder.parameter(SMALL)
    (largest,) = builder.op("max", [x], {"axis": axis})
    (again,) = builder.op("square", [x])
    return builder.finish([largest, again])


def test_a_mistake_in_a_segment_is_told_with_its_step():
    program = example()
    (segment,) = compiled(program, fusions=False)
    assert check_segment(program, segment) == []
    for said, changed in spoilt(segment):
        found = check_segment(program, changed)
        assert any(said in problem for problem in found), (said, found)


class TestViews:
    """Views as NumPy has them: also of arrays without axes, which NumPy turns into numbers."""

    @each_case(
        ("op", "attributes", "shape"),
        [
            ("flip", {"axis": None}, ()),
            ("flip", {"axis": None}, (2, 3)),
            ("flip", {"axis": -1}, (2, 3)),
            ("flip", {"axis": (0, 1)}, (2, 3)),
            ("transpose", {}, ()),
            ("transpose", {}, (2, 3)),
            ("permute_dims", {"axes": (1, 0, 2)}, (2, 3, 4)),
            ("moveaxis", {"source": 0, "destination": -1}, (2, 3, 4)),
            ("matrix_transpose", {}, (2, 3, 4)),
            ("reshape", {"shape": ()}, (1, 1)),
            ("reshape", {"shape": (3, -1)}, (2, 3)),
            ("squeeze", {"axis": 0}, (1,)),
            ("squeeze", {"axis": None}, (1, 1)),
            ("expand_dims", {"axis": 0}, ()),
            ("broadcast_to", {"shape": (4, 3)}, ()),
            ("broadcast_to", {"shape": (4, 3)}, (3,)),
            ("diagonal", {"offset": 1}, (3, 3)),
            ("diagonal", {"offset": -1}, (2, 3, 4)),
            ("getitem", {"index": (1,)}, (3,)),
            ("getitem", {"index": ("...", 1)}, (2, 3)),
            ("getitem", {"index": (("slice", None, None, -2), None)}, (5, 2)),
            ("getitem", {"index": ()}, ()),
        ],
    )
    def test_each_view_lies_where_a_segment_has_it(self, op, attributes, shape):
        builder = Builder()
        x = builder.parameter(Meta.of(shape, "float32"))
        (y,) = builder.op("negative", [x])
        (y,) = builder.op(op, [y], attributes)
        program = builder.finish(builder.op("sum", [y]))
        (segment,) = compiled(program, fusions=False)
        assert [call.steps for call in segment.calls] == [(0,), (2,)]  # the view itself is no call
        assert check_segment(program, segment) == []

    def test_there_is_one_for_each_op_that_has_views(self):
        assert {name for name, op in REGISTRY.items() if op.view is not None} == VIEWS.keys()
