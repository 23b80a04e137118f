"""What a GPU's kernels are known to take for temporaries."""

from __future__ import annotations

import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda_scratch import PER_COMPLEX, PER_ELEMENT, WORK_AREAS, least_temporaries

REAL, COMPLEX = Meta.of((1000, 1000), "float64"), Meta.of((1000, 1000), "complex128")


@pytest.mark.parametrize("table", [PER_ELEMENT, PER_COMPLEX, WORK_AREAS])
def test_figures_are_of_ops(table):
    assert table.keys() <= REGISTRY.keys()
    assert all(value > 0 for value in table.values())


def test_large_real_powers_take_what_they_took():
    assert least_temporaries("pow", (REAL, float), (REAL,)) == 0
    assert least_temporaries("pow", (COMPLEX, float), (COMPLEX,)) >= 64 * COMPLEX.size
    assert least_temporaries("add", (REAL, REAL), (REAL,)) == 0


def test_the_largest_tensor_counts():
    row = Meta.of((1000,), "float64")
    assert (
        least_temporaries("uniform", (row,), (REAL,)) == least_temporaries("uniform", (REAL,), (row,)) == 8 * REAL.size
    )


def test_a_work_area_does_not_grow():
    small, large = (least_temporaries("qr", (x,), (x, x)) for x in (Meta.of((9, 9), "float32"), REAL))
    assert small == large > 0
