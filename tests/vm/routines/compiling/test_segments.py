"""Cutting programs into segments, and laying out their memory."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import find_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta
from tensord.vm.routines.compiling.arena import ALIGNMENT, Arena
from tensord.vm.routines.compiling.segments import MAX_SEGMENT_STEPS, MAX_SEGMENT_WORK, Piece

from ....each_case import each_case
from ..compiled_programs import pieces_of

SMALL = Meta.of((4, 4), "float64")


def cut(program: Program, work: int = 1) -> list[Piece]:
    return pieces_of(program, lambda _position: work)


def fused(program: Program, work: int = 1) -> list[Piece]:
    return pieces_of(program, lambda _position: work, find_fusions(program, least=1))


def built(*ops: Any, results: int = 1) -> Program:
    """A chain of ops, each a name or (name, device). Returns the last `results` values."""
    builder = Builder()
    values = [builder.parameter(SMALL)]
    for op in ops:
        name, device = (op, 0) if isinstance(op, str) else op
        values += builder.op(name, values[-1:], device=device)
    return builder.finish(values[len(values) - results :])


class TestPieces:
    def test_ops_that_need_nothing_in_between_are_one_piece(self) -> None:
        assert cut(built("negative", "abs", "square")) == [range(3)]

    def test_a_step_by_itself_is_no_segment(self) -> None:
        assert cut(built("negative", ("abs", 1), "square")) == [range(1), range(1, 2), range(2, 3)]

    def test_an_op_with_several_results_belongs_to_its_segment(self) -> None:
        builder = Builder()
        x = builder.parameter(SMALL)
        q, r = builder.op("qr", [x])
        (y,) = builder.op("matmul", [q, r])
        assert cut(builder.finish([y])) == [range(2)]

    def test_another_device_begins_another_segment(self) -> None:
        assert cut(built("negative", "abs", ("square", 1), ("abs", 1))) == [range(2), range(2, 4)]

    def test_two_slots_may_be_one_device(self) -> None:
        program = built("negative", "abs", ("square", 1), ("abs", 1))
        assert pieces_of(program, lambda _position: 1, devices=("sim:0", "sim:0")) == [range(4)]
        assert pieces_of(program, lambda _position: 1, devices=("sim:0", "sim:1")) == [range(2), range(2, 4)]

    def test_what_needs_the_host_is_alone(self) -> None:
        builder = Builder()
        x = builder.parameter(SMALL)
        (y,) = builder.op("negative", [x])
        (y,) = builder.op("abs", [y])
        builder.print([None], [y])
        (z,) = builder.op("unique_values", [y])
        (y,) = builder.op("abs", [builder.move(y, 0)])
        (y,) = builder.op("square", [y])
        assert cut(builder.finish([y, z])) == [range(2), range(2, 3), range(3, 4), range(4, 5), range(5, 7)]

    def test_views_belong_to_a_segment_also_where_they_leave_it(self) -> None:
        assert cut(built("negative", "transpose", "abs")) == [range(3)]
        assert cut(built("negative", "abs", "transpose")) == [range(3)]
        assert cut(built("negative", "abs", "transpose", ("abs", 1), ("abs", 1)))[0] == range(3)

    def test_a_view_that_leaves_is_alone_where_what_it_is_of_is_written_behind_it(self) -> None:
        for results in (1, 2):  # the second time the view leaves
            builder = Builder()
            x = builder.parameter(SMALL)
            (y,) = builder.op("negative", [x])
            (y,) = builder.op("abs", [y])
            (view,) = builder.op("transpose", [y])
            (y,) = builder.op("add", [y, x], into=[y])
            (z,) = builder.op("add", [y, view])
            found = cut(builder.finish([z, view][:results]))
            assert found == ([range(5)] if results == 1 else [range(2), range(2, 3), range(3, 5)])

    def test_views_alone_are_no_segment(self) -> None:
        assert cut(built("transpose", "matrix_transpose")) == [range(1), range(1, 2)]
        assert cut(built("transpose", "negative")) == [range(1), range(1, 2)]

    def test_a_segment_has_so_many_steps_and_so_much_work_at_the_most(self) -> None:
        count = MAX_SEGMENT_STEPS + 2
        assert cut(built(*["negative"] * count)) == [range(MAX_SEGMENT_STEPS), range(MAX_SEGMENT_STEPS, count)]
        assert cut(built(*["negative"] * 4), MAX_SEGMENT_WORK // 2) == [range(2), range(2, 4)]
        assert cut(built(*["negative"] * 2), 2 * MAX_SEGMENT_WORK) == [range(1), range(1, 2)]

    def test_a_segment_ends_before_or_behind_a_fusion_and_not_in_it(self) -> None:
        program = built("qr", *["negative"] * 3, "qr", *["abs"] * 3)
        assert [fusion.steps for fusion in find_fusions(program, least=1)] == [(1, 2, 3), (5, 6, 7)]
        assert fused(program, MAX_SEGMENT_WORK // 5) == [range(5), range(5, 8)]  # without fusions the first five, too
        assert fused(program, MAX_SEGMENT_WORK // 2) == [range(1), range(1, 4), range(4, 5), range(5, 8)]
        # Four times as much work would be too much.
        assert fused(program, 2 * MAX_SEGMENT_WORK)[1:3] == [range(1, 3), range(3, 4)]
        long = built(*["inv"] * (MAX_SEGMENT_STEPS - 1), *["negative"] * 3)
        assert fused(long) == [range(MAX_SEGMENT_STEPS + 2)]

    def test_a_fusion_makes_a_segment_little_longer(self) -> None:
        """Compiling it would take long: chains that take turns overlap everywhere."""
        builder = Builder()
        chains = [builder.parameter(SMALL), builder.parameter(SMALL)]
        for n in range(4 * MAX_SEGMENT_STEPS):
            chains[n % 2] = builder.op("inv" if n % 24 in (22, 11) else "negative", [chains[n % 2]])[0]
        program = builder.finish(chains)
        within = {n for each in find_fusions(program, least=1) for n in range(each.steps[0] + 1, each.steps[-1] + 1)}
        assert len(within) > 3.9 * MAX_SEGMENT_STEPS
        found = fused(program)
        assert max(map(len, found)) <= 5 * MAX_SEGMENT_STEPS // 4
        assert [n for piece in found for n in piece] == [*range(4 * MAX_SEGMENT_STEPS)]

    @each_case("ops", [["transpose"], ["negative", ("negative", 1)], ["negative", "transpose"]])
    def test_the_time_grows_with_the_steps_alone(self, ops: list[Any]) -> None:
        seconds = []
        for count in (1000, 4000):
            program = built(*ops * (count // len(ops)))
            times = []
            for _ in range(3):
                started = time.process_time()
                cut(program)
                times.append(time.process_time() - started)
            seconds.append(min(times))
        assert seconds[1] < 10 * seconds[0]  # 16 times, if it were quadratic


class TestArena:
    def test_bytes_serve_again_once_nobody_uses_them(self) -> None:
        arena = Arena()
        first, second = arena.allocate(100), arena.allocate(1)
        arena.keep(first, 3)
        arena.keep(second, 9)
        arena.now = 3
        third = arena.allocate(128)
        arena.now = 4
        fourth, fifth = arena.allocate(64), arena.allocate(64)
        arena.plan()
        offsets = [arena.offset_of(address) for address in (first, second, third, fourth, fifth)]
        assert sorted(offsets[:3]) == [0, 2 * ALIGNMENT, 4 * ALIGNMENT]
        assert arena.size == 5 * ALIGNMENT
        assert arena.offset_of(first + 8) == offsets[0] + 8
        assert max(offsets) == offsets[1]

    def test_a_small_part_leaves_no_hole_too_small_for_a_large_one(self) -> None:
        arena = Arena()
        for step, (nbytes, last) in enumerate([(640, 1), (640, 5), (64, 5), (640, 5)]):
            arena.now = step
            arena.keep(arena.allocate(nbytes), last)
        arena.plan()
        assert arena.size == 2 * 640 + 64  # 3 * 640, if each were put into the first hole that takes it

    def test_parts_that_live_at_a_time_never_overlap_and_are_aligned(self) -> None:
        rng = np.random.default_rng(0)
        arena = Arena()
        lives = []
        for step in range(300):
            arena.now = step
            size, last = int(rng.integers(0, 1000)), step + int(rng.integers(0, 20))
            address = arena.allocate(size)
            arena.keep(address, last)
            lives.append((address, max(size, 1), step, last))
        arena.plan()
        parts = [(arena.offset_of(address), size, first, last) for address, size, first, last in lives]
        for index, (offset, size, _, last) in enumerate(parts):
            assert offset % ALIGNMENT == 0
            assert offset + size <= arena.size
            for other, more, begun, _ in parts[index + 1 :]:
                assert begun > last or other >= offset + size or other + more <= offset
        most = max(sum(n for _, n, first, last in parts if first <= step <= last) for step in range(300))
        assert arena.size < 1.3 * most
