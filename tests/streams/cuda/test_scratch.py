"""The known temporaries of a GPU's kernels."""

from __future__ import annotations

import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.scratch import FIGURES, least_temporaries

from ...each_case import each_case

REAL, COMPLEX, WHOLE = (Meta.of((1000, 1000), dtype) for dtype in ("float64", "complex128", "int64"))
FEW = Meta.of((10,), "int64")


def test_figures_are_of_ops():
    assert FIGURES.keys() <= REGISTRY.keys()
    assert all(any(figure) for figure in FIGURES.values())


@pytest.mark.parametrize(("op", "taking", "others"), [("pow", COMPLEX, REAL), ("remainder", REAL, WHOLE)])
def test_kernels_of_some_kinds_take_nothing(op, taking, others):
    assert least_temporaries(op, (taking, float), (taking,)) >= taking.nbytes
    assert least_temporaries(op, (others, int), (others,)) == 0


def test_an_op_that_is_not_listed_takes_nothing():
    assert least_temporaries("add", (REAL, REAL), (REAL,)) == 0


def test_the_largest_tensor_counts():
    row = Meta.of((1000,), "float64")
    there, here = least_temporaries("conv2d", (row,), (REAL,)), least_temporaries("conv2d", (REAL,), (row,))
    assert there == here >= REAL.nbytes


@each_case(
    ("op", "dtype", "line", "lines"),  # bytes for each element; `lines` were measured on an H100
    [
        ("sort", "int8", 3, 26),
        ("sort", "float64", 17, 40),
        ("sort", "complex128", 33, 64),
        ("argsort", "int8", 19, 41),
        ("argsort", "float64", 33, 48),
        ("unique_values", "int8", 12, 12),
        ("unique_values", "float64", 26, 26),
    ],
)
def test_one_line_is_sorted_without_the_number_of_its_line(op, dtype, line, lines):
    count = 1 << 20
    for shape, each in (((count,), line), ((count // 4, 4), lines)):
        x = Meta.of(shape, dtype)
        assert least_temporaries(op, (x,), (x,)) == each * count


def test_a_vast_line_can_be_sorted_on_a_gpu_with_64_gib():
    x = Meta.of(((1 << 31) + 64,), "int8")
    for name in ("sort", "median", "unique_values"):
        op = find(name)
        taken = op.temporaries((x,), (x,), dict(op.freeze({})), least=least_temporaries(name, (x,), (x,)))
        assert 2 * x.nbytes + taken < 60 << 30


def test_a_work_area_is_small_for_a_small_matrix_and_bounded_for_a_large_one():
    small, large, larger = (Meta.of((side, side), "float32") for side in (32, 1000, 4000))
    assert least_temporaries("qr", (small,), (small, small)) <= 1 << 19
    assert least_temporaries("qr", (large,), (large, large)) == least_temporaries("qr", (larger,), (larger, larger))


@each_case(
    ("op", "metas", "outputs"),
    [
        ("advanced_setitem", (REAL, FEW, FEW), (REAL,)),  # it writes a few elements of a large tensor
        ("take_along_axis", (REAL, FEW), (FEW,)),
        ("min", (REAL,), (FEW,)),
        ("qr", (FEW,), (FEW, FEW)),
    ],
)
def test_a_large_operand_does_not_count_where_temporaries_do_not_grow_with_it(op, metas, outputs):
    assert 0 < least_temporaries(op, metas, outputs) <= 16 << 20
    larger = tuple(Meta.of((10_000, 10_000), "float64") if m is REAL else m for m in metas)
    assert least_temporaries(op, larger, outputs) == least_temporaries(op, metas, outputs)
