"""The declared temporaries of ops bound those of the kernels: every op, on packed and strided operands.

NumPy tells tracemalloc of its arrays. LAPACK and sorts allocate by themselves; of those the traced part is checked, and
that they declare more. Their declarations come from the kernels' resident memory at its peak.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, UNCOUNTED_BYTES, BoundKernel, OpDef, find
from tensord.interpreter.schema.pieces import MAX_PIECE, in_pieces, length_of_pieces
from tensord.interpreter.schema.scratch import largest
from tensord.interpreter.types.meta import Meta
from tensord.streams.host.blas import BLAS

from ...each_case import each_case
from ..conftest import meta_of
from .large_calls import COUNT, Case, every_case, strided

# Data decide the size of their results, and so of their temporaries, bounded by the device's memory alone.
UNBOUNDED = {"repeat_each"}
# A bound for all subscripts is far above the need of most of them.
GENEROUS = {"einsum"}
# The memory of a piece is free again before the next one: more pieces have the same peak.
SEVERAL = 3


@pytest.fixture
def _traced() -> Iterator[None]:
    BLAS.ask(1)  # on a busy machine its threads wait for each other
    tracemalloc.start()
    yield
    tracemalloc.stop()
    BLAS.drop(1)


def peak_of(op: OpDef, kernel: BoundKernel, operands: Any, outputs: Any) -> int:
    """The bytes that a call takes besides its results."""
    results = [np.full(m.shape, 1, m.dtype) for m in outputs if m is not None]
    with np.errstate(all="ignore"):
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        made = kernel(*operands, *results)
        _, peak = tracemalloc.get_traced_memory()
    return peak - before - (sum(array.nbytes for array in made) if op.dynamic else 0)


def measure(case: Case) -> tuple[int, list[int], list[int]] | None:
    """The op's declaration; the peaks with packed and with strided operands; those of pieces, if it may run so."""
    op, operands = find(case.op), case.operands
    frozen = op.freeze(case.attributes)
    metas = tuple(map(meta_of, operands))
    try:
        outputs = infer_once(op, metas, frozen)
    except MetadataError:
        return None
    kernel = op.bind(np, len(operands), dict(frozen))
    declared = op.temporaries(metas, outputs, dict(frozen))
    in_parts = declared > 0 and op.works_in_pieces(metas, dict(frozen))
    layouts = (operands,) if in_parts else (operands, tuple(map(strided, operands)))  # those parts are strided, too
    whole = [peak_of(op, kernel, each, outputs) for each in layouts]
    pieces = []
    if in_parts:
        length = length_of_pieces(declared, largest((*metas, *outputs)))
        few = tuple(map(partial(part_of, elements=SEVERAL * length), operands))
        results = infer_once(op, tuple(map(meta_of, few)), frozen)
        pieces = [peak_of(op, in_pieces(kernel, length), each, results) for each in (few, tuple(map(strided, few)))]
    return declared, whole, pieces


def part_of(operand: Any, elements: int) -> Any:
    """The first rows of a matrix, with `elements` elements; other operands are unchanged."""
    return operand[: -(-elements // operand.shape[1])] if isinstance(operand, np.ndarray) and operand.ndim else operand


def complaints(case: Case, declared: int, whole: list[int], pieces: list[int]) -> list[str]:
    """The errors of an op's declaration."""
    kinds = [f"{x.dtype}{x.shape}" if isinstance(x, np.ndarray) else x for x in case.operands]
    what, found = f"{case.op} {kinds} {case.attributes}", []
    if max(whole) > (declared + UNCOUNTED_BYTES) * 9 // 8:
        found.append(f"{what} takes {whole}, declares {declared}")
    if max(pieces, default=0) > UNCOUNTED_BYTES:
        found.append(f"{what} takes {pieces} in pieces")
    if case.traced and not pieces and case.op not in GENEROUS and declared > 4 * max(whole) + UNCOUNTED_BYTES:
        found.append(f"{what} declares {declared}, takes {whole}")
    return found


@pytest.mark.usefixtures("_traced")
def test_every_op_declares_what_it_takes() -> None:
    """tracemalloc counts the allocations of the whole process. So a kernel is charged with NumPy's imports at the first
    call, and with those of other threads: the thread that brings a worker of pytest-xdist its next tests has
    thousands of numbers at a time, and some pieces take nearly all that they may. Neither happens twice."""
    wrong, seen = [], set(UNBOUNDED)
    for case in every_case():
        found = measure(case)
        if found is None or case.op in UNBOUNDED:
            continue
        seen.add(case.op)
        if complaints(case, *found):
            wrong += complaints(case, *(measure(case) or found))
    assert not wrong, "\n".join(wrong)
    assert not (left := REGISTRY.keys() - seen), f"large_calls.py has no call of {sorted(left)}"


def test_estimates_take_results_that_are_not_known() -> None:
    """The metas of results are unknown where `out=` is a tensor whose meta data decide."""
    for case in every_case():
        op, metas = find(case.op), tuple(map(meta_of, case.operands))
        attributes, pending = op.freeze(case.attributes), (None,) * op.outputs
        if not op.dynamic and is_taken(op, metas, attributes):
            assert op.estimate(metas, pending, dict(attributes)) >= 0
            assert op.temporaries(metas, pending, dict(attributes)) >= 0


def is_taken(op: OpDef, metas: Any, attributes: Any) -> bool:
    with suppress(MetadataError):
        return bool(infer_once(op, metas, attributes))
    return False


@each_case("name", sorted(name for name, op in REGISTRY.items() if "linalg.svd" in op.needs))
def test_what_lapack_takes_by_itself_is_declared(name: str) -> None:
    op, x = find(name), Meta.of((512, 512), "float64")
    frozen = op.freeze({"ord": "nuc"} if name == "matrix_norm" else {})
    assert op.temporaries((x,), infer_once(op, (x,), frozen), dict(frozen)) >= x.nbytes


@each_case("name", sorted(name for name, op in REGISTRY.items() if op.pointwise and op.scratch))
def test_an_op_gives_in_pieces_what_it_gives_at_once(name: str, make: Any) -> None:
    """Also if written over an operand, and with operands that broadcast or are not packed."""
    op, length = find(name), MAX_PIECE // 16
    count = length * 3 // 2
    dtypes = ["bool", *["float64"] * 2] if name == "where" else ["float64"] * op.inputs
    operands = [np.abs(make((2, count), dtype, seed)).astype(dtype) for seed, dtype in enumerate(dtypes)]
    kernel = op.bind(np, op.inputs, dict(op.freeze({})))
    layouts: list[list[Any]] = [operands, [strided(x) for x in operands]]
    layouts += [[operands[0][:, :1], *operands[1:]]] if op.inputs > 1 else []
    layouts += [[*operands[:-1], 0.5]] if op.inputs > 1 and not name.endswith("_grad") else []
    with np.errstate(all="ignore"):
        for each in layouts:
            whole, pieces = np.zeros((2, count)), np.zeros((2, count))
            kernel(*each, whole)
            in_pieces(kernel, length)(*each, pieces)
            np.testing.assert_array_equal(pieces, whole)
        target = operands[-1]
        kernel(*operands, whole)
        in_pieces(kernel, length)(*operands, target)
        np.testing.assert_array_equal(target, whole)


@pytest.mark.usefixtures("_traced")
def test_a_part_that_is_written_in_place_needs_no_second_tensor() -> None:
    x = np.zeros(COUNT)
    kernel = find("setitem").bind(np, 2, {"index": (("slice", 0, 9, None),)}, aliased=True)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    kernel(x, 1.0, x)
    assert tracemalloc.get_traced_memory()[1] - before < x.nbytes // 2
    assert x[:10].tolist() == [1.0] * 9 + [0.0]


def test_a_tensor_may_be_assigned_to_itself_in_another_order() -> None:
    x = np.arange(9.0)
    kernel = find("setitem").bind(np, 2, {"index": (("slice", None, None, -1),)}, aliased=True)
    kernel(x, x, x)
    assert x.tolist() == list(range(8, -1, -1))
    positions = np.array([1, 2, 0])
    kernel = find("advanced_setitem").bind(np, 3, {"index": ("tensor",)}, aliased=True)
    kernel(positions, 7, positions, positions)
    assert positions.tolist() == [7, 7, 7]
