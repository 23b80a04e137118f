"""The results of each collective, by both algorithms, against NumPy; and invalid collectives."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.collectives import ring
from tensord.interpreter.collectives.choice import DIRECT, MIN_CHUNK_BYTES, RING, communicator_of, schedule_of
from tensord.interpreter.collectives.collective import CollectiveKind, CollectiveSpec, collective
from tensord.interpreter.collectives.over_nodes import count_of, part_of
from tensord.interpreter.collectives.regions import cut, cut_sizes, pieces
from tensord.interpreter.collectives.request import check_devices
from tensord.interpreter.collectives.ring import SLICED_CHUNK_BYTES, SLICED_CHUNK_BYTES_OVER_NODES
from tensord.interpreter.collectives.steps import CollectiveStep, Steps, without_empty
from tensord.interpreter.collectives.values import carry_out, compute
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.device_names import node_of
from tensord.interpreter.types.meta import Meta

RANKS = (1, 2, 3, 4, 7)
SHAPES = ((), (0,), (5,), (4, 6), (2, 3, 8))
MERGES: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def values_of(shapes: Any, dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [(rng.standard_normal(shape) * 4).astype(dtype) for shape in shapes]


def collective_of(kind: CollectiveKind, inputs: list[Any], ranks: int, **given: Any) -> CollectiveSpec:
    return collective(kind, [Meta.of(array.shape, array.dtype) for array in inputs], ranks, **given)


def results_by(communicator: Any, given: CollectiveSpec, inputs: list[Any]) -> list[Any]:
    results: list[Any] = [np.full(meta.shape, 99, meta.dtype) for meta in given.outputs()]
    carry_out(given, without_empty(getattr(communicator, given.kind)(given)), inputs, results)
    return results


def reduced(inputs: list[Any], reduction: str) -> Any:
    result = inputs[0]
    for other in inputs[1:]:
        result = MERGES[reduction](result, other)
    return result


@pytest.mark.parametrize("communicator", [DIRECT, RING], ids=lambda one: one.name)
@pytest.mark.parametrize("reduction", MERGES)
def test_all_reduce_gives_all_ranks_the_same_bits(communicator: Any, reduction: str) -> None:
    for ranks, shape, dtype in product(RANKS, SHAPES, ("float32", "int8")):
        inputs = values_of([shape] * ranks, dtype)
        given = collective_of(CollectiveKind.ALL_REDUCE, inputs, ranks, reduction=reduction)
        first, *others = results_by(communicator, given, inputs)
        assert all(np.array_equal(first, other) for other in others)
        expected = reduced(inputs, reduction)
        if reduction == "sum" and dtype == "float32":
            np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(first, expected)


@pytest.mark.parametrize("communicator", [DIRECT, RING], ids=lambda one: one.name)
def test_all_gather_takes_uneven_and_empty_parts(communicator: Any) -> None:
    for ranks, axis in product(RANKS, (0, 1, -1)):
        inputs = values_of([tuple(np.insert([2, 3], axis % 3, rank % 3)) for rank in range(ranks)])
        given = collective_of(CollectiveKind.ALL_GATHER, inputs, ranks, axis=axis)
        for result in results_by(communicator, given, inputs):
            np.testing.assert_array_equal(result, np.concatenate(inputs, axis))


@pytest.mark.parametrize("reduction", MERGES)
def test_reduce_scatter_gives_each_rank_its_part_of_the_sum(reduction: str) -> None:
    for ranks, axis in product(RANKS, (0, 1)):
        inputs = values_of([(5, 3)] * ranks, "int32")
        given = collective_of(CollectiveKind.REDUCE_SCATTER, inputs, ranks, reduction=reduction, axis=axis)
        found = results_by(DIRECT, given, inputs)
        for result, part in zip(found, np.array_split(reduced(inputs, reduction), ranks, axis), strict=True):
            np.testing.assert_array_equal(result, part)


@pytest.mark.parametrize("communicator", [DIRECT, RING], ids=lambda one: one.name)
def test_broadcast_gives_the_value_to_all(communicator: Any) -> None:
    for ranks, shape in product(RANKS, SHAPES):
        (value,) = inputs = values_of([shape])
        for root in range(ranks):
            given = collective_of(CollectiveKind.BROADCAST, inputs, ranks, root=root)
            for result in results_by(communicator, given, inputs):
                np.testing.assert_array_equal(result, value)


def test_all_to_all_exchanges_parts() -> None:
    for ranks, split, concat in product(RANKS, (0, 1), (0, 1)):
        sizes = [rank % 3 + 1 for rank in range(ranks)]
        inputs = values_of([tuple(size if axis == concat else 5 for axis in (0, 1)) for size in sizes])
        given = collective_of(CollectiveKind.ALL_TO_ALL, inputs, ranks, axis=split, concat_axis=concat)
        parts = [np.array_split(value, ranks, split) for value in inputs]
        for rank, result in enumerate(results_by(DIRECT, given, inputs)):
            np.testing.assert_array_equal(result, np.concatenate([part[rank] for part in parts], concat))


def test_a_ring_moves_no_more_than_it_has_to_and_only_between_neighbours() -> None:
    for ranks in RANKS[1:]:
        given = collective(CollectiveKind.ALL_REDUCE, [Meta.of((ranks * 12,), "float32")] * ranks, ranks)
        received = [0] * ranks
        for step in RING.all_reduce(given):
            assert step.source.rank == (step.rank - 1) % ranks
            received[step.rank] += step.target.region.size
        assert received == [2 * (ranks - 1) * 12] * ranks


def test_large_chunks_go_around_in_two_slices() -> None:
    ranks, size = 4, 4 * SLICED_CHUNK_BYTES
    given = collective(CollectiveKind.ALL_REDUCE, [Meta.of((size,), "int8")] * ranks, ranks)
    steps = RING.all_reduce(given)
    assert len(steps) == 2 * (ranks - 1) * 2 * ranks
    assert {step.target.region.size for step in steps} == {SLICED_CHUNK_BYTES // 2}
    small = collective(CollectiveKind.ALL_REDUCE, [Meta.of((size - 1,), "int8")] * ranks, ranks)
    assert len(RING.all_reduce(small)) == len(steps) // 2


def test_over_nodes_only_chunks_of_megabytes_are_sliced() -> None:
    for chunk, slices in ((SLICED_CHUNK_BYTES_OVER_NODES, 2), (SLICED_CHUNK_BYTES_OVER_NODES - 1, 1)):
        given = collective(CollectiveKind.ALL_REDUCE, [Meta.of((2 * chunk,), "int8")] * 2, 2)
        assert len(schedule_of(given, over_nodes=True).steps) == count_of(given) == 4 * slices


def test_each_step_is_a_task_of_the_nodes_that_have_and_receive_its_chunk() -> None:
    devices = ("a/sim:0", "a/sim:1", "b/sim:0", "c/sim:0")
    for kind in CollectiveKind:
        given = collective(
            kind, [Meta.of((8, 9), "float32")] * (1 if kind is CollectiveKind.BROADCAST else 4), 4, root=2
        )
        homes = devices[2:3] if kind is CollectiveKind.BROADCAST else devices
        steps = schedule_of(given, over_nodes=True).steps
        tasks = [(node, task) for node in "abc" for task in part_of(given, homes, devices, node).tasks]
        assert len({task.number for _, task in tasks}) == len(steps)
        for node, task in tasks:
            assert node in {task.source, task.target}
            assert task.step == steps[task.number]
            assert task.target == node_of(devices[task.step.rank])
        crossing = [task for _, task in tasks if task.source != task.target]
        assert all(crossing.count(task) == 2 for task in crossing)


def test_slices_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    for ranks, shape in product(RANKS, ((1,), (4, 6), (5,), (2, 3, 8), (97,))):
        inputs = values_of([shape] * ranks)
        given = collective_of(CollectiveKind.ALL_REDUCE, inputs, ranks)
        found = [result.tobytes() for result in results_by(RING, given, inputs)]
        monkeypatch.setattr(ring, "SLICED_CHUNK_BYTES", 1)
        assert [result.tobytes() for result in results_by(RING, given, inputs)] == found
        monkeypatch.undo()


def test_a_chunk_is_summed_from_the_rank_of_its_number_on() -> None:
    """The same sum can thus be computed from moves and ops."""
    ranks = 3
    inputs = values_of([(10,)] * ranks)
    (first, *_) = results_by(RING, collective_of(CollectiveKind.ALL_REDUCE, inputs, ranks), inputs)
    for chunk, part in enumerate(np.array_split(first, ranks)):
        own = [np.array_split(value, ranks)[chunk] for value in inputs]
        order = [own[(chunk + turn) % ranks] for turn in range(ranks)]
        assert ((order[0] + order[1]) + order[2]).tobytes() == part.tobytes()


def reads_of(step: CollectiveStep) -> list[tuple[int, int]]:
    return [(each.rank, each.chunk) for each in (step.source, step.base) if each is not None and each.chunk >= 0]


def test_a_step_reads_only_chunks_that_were_written_before() -> None:
    for communicator, ranks in product((DIRECT, RING), RANKS):
        metas = [Meta.of((8, 9), "float32")] * ranks
        for kind in CollectiveKind:
            given = collective(kind, metas[:1] if kind is CollectiveKind.BROADCAST else metas, ranks)
            steps: Steps = getattr(communicator, kind)(given)
            written: set[tuple[int, int]] = set()
            for step in steps:
                assert written.issuperset(reads_of(step))
                written.add((step.rank, step.target.chunk))
            assert {rank for rank, _ in written} == set(range(ranks))


def test_size_and_ranks_decide_which_algorithm_it_is() -> None:
    for ranks, (elements, expected) in product((2, 4), ((1, DIRECT), (MIN_CHUNK_BYTES, RING))):
        metas = [Meta.of((elements * ranks,), "int8")] * ranks
        assert communicator_of(collective(CollectiveKind.ALL_REDUCE, metas, ranks)) is expected
        assert communicator_of(collective(CollectiveKind.REDUCE_SCATTER, metas, ranks)) is DIRECT
    assert (
        communicator_of(collective(CollectiveKind.ALL_REDUCE, [Meta.of((MIN_CHUNK_BYTES * 9,), "int8")], 1)) is DIRECT
    )


def test_empty_values_take_no_step_and_have_results() -> None:
    inputs = values_of([(0, 3)] * 3)
    given = collective_of(CollectiveKind.ALL_REDUCE, inputs, 3)
    assert schedule_of(given).steps == []
    assert [result.shape for result in compute(given, inputs)] == [(0, 3)] * 3


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_out_of_bounds_is_refused(axis: int) -> None:
    metas = [Meta.of((2, 2), "int8")] * 2
    for kind, name in (
        (CollectiveKind.ALL_GATHER, "axis"),
        (CollectiveKind.REDUCE_SCATTER, "axis"),
        (CollectiveKind.ALL_TO_ALL, "concat_axis"),
    ):
        with pytest.raises(MetadataError, match="out of bounds"):
            collective(kind, metas, 2, **{name: axis})  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused() -> None:
    one, other, flags = Meta.of((2, 2), "int8"), Meta.of((3, 2), "int8"), Meta.of((2,), "bool")
    for text, given in (
        ("unknown collective 'x'", lambda: collective("x", [one], 1)),
        ("1 tensors for 2 devices", lambda: collective("all_reduce", [one], 2)),
        ("0 tensors for 0 devices", lambda: collective("all_reduce", [], 0)),
        ("2 tensors for 2 devices", lambda: collective("broadcast", [one, one], 2)),
        ("must be equal$", lambda: collective("all_reduce", [one, other], 2)),
        ("equal but for axis 1", lambda: collective("all_gather", [one, other], 2, axis=1)),
        ("unknown reduction 'mean'", lambda: collective("all_reduce", [one], 1, reduction="mean")),
        ("not bool", lambda: collective("all_reduce", [flags], 1)),
        ("not complex64", lambda: collective("all_reduce", [Meta.of((), "complex64")], 1, reduction="max")),
        ("too large", lambda: collective("all_gather", [Meta.of((1 << 62,), "int8")] * 2, 2)),
    ):
        with pytest.raises(MetadataError, match=text):
            given()


def test_bools_have_a_maximum() -> None:
    flags = Meta.of((2,), "bool")
    assert collective("all_reduce", [flags] * 2, 2, reduction="max").outputs() == (flags, flags)


def test_parts_are_cut_as_numpy_cuts_them() -> None:
    for size, parts in product(range(9), range(1, 6)):
        assert cut_sizes(size, parts) == [len(part) for part in np.array_split(np.empty(size), parts)]
    assert [region.begin for region in cut((2, 5), 1, 2)] == [(0, 0), (0, 3)]


def test_pieces_cover_a_value_once_and_are_small() -> None:
    for shape, most in product([*SHAPES, (3, 1, 4)], (1, 2, 5, 12, 1000)):
        seen = np.zeros(shape, int)
        for index in pieces(shape, most):
            assert seen[index].size <= most
            seen[index] += 1
        assert seen.sum() == seen.size == math.prod(shape)


class Compared(str):
    """A name that counts how often any is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.compared += 1
        return str.__eq__(self, other)


def test_a_device_twice_is_found_without_comparing_each_with_each() -> None:
    names = [Compared(f"sim:{n}") for n in range(200)]
    check_devices("all_reduce", names, names)
    assert Compared.compared < 2 * len(names)
    with pytest.raises(MetadataError, match="sim:7 twice"):
        check_devices("all_reduce", [*names, "sim:7"], names)
