"""The temporaries of kernels are measured as the peak of the pool."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tensord.interpreter.schema.opdef import UNCOUNTED_BYTES

from ..interpreter.ops.large_calls import Case
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .stage_temporaries import Meter, Taken, cases_by_op, measure, worst_of

MIB = 1 << 20


@pytest.fixture
def meter() -> Iterator[Meter]:
    with installed(Gpu(seed=1)):
        meter = Meter()
        with meter.ready():
            yield meter


def test_the_peak_counts_what_lives_at_once(meter: Meter) -> None:
    def call() -> None:
        for _ in range(3):
            first = meter.xp.zeros(MIB, np.uint8)
            second = meter.xp.zeros(2 * MIB, np.uint8)
            del first, second

    peak, _ = meter.peak(call)
    assert peak == 3 * MIB


def test_an_elementwise_op_takes_nothing_and_a_sort_what_the_table_says(meter: Meter) -> None:
    x = np.random.default_rng(0).random((512, 256))
    added = measure(meter, Case("negative", (x,), {}))
    assert added is not None
    assert (added.reserved, added.is_short) == (0, False)
    ordered = measure(meter, Case("sort", (x,), {"axis": 0}))
    assert ordered is not None
    assert ordered.reserved == 40 * x.size


def test_ops_that_the_array_module_lacks_are_left_out(meter: Meter) -> None:
    measured = cases_by_op(meter).keys()
    assert {"sort", "expn"} <= measured
    assert not measured & {"hyp1f1", "spence", "repeat_each"}


def test_calls_that_an_op_does_not_take_are_left_out(meter: Meter) -> None:
    assert measure(meter, Case("matmul", (np.ones((2, 3)), np.ones((2, 3))), {})) is None
    assert worst_of(meter, []) is None


def test_a_call_that_there_is_no_time_for_is_not_measured(meter: Meter) -> None:
    case, turns = Case("sort", (np.ones((8, 8)),), {}), iter([False, True])
    assert worst_of(meter, [case], lambda: True) is None
    assert worst_of(meter, [case, case], lambda: next(turns)) is not None


@pytest.mark.parametrize(("taken", "short"), [(0, False), (UNCOUNTED_BYTES, False), (2 * MIB, True)])
def test_more_than_is_reserved_and_noticed_is_short(taken: int, short: bool) -> None:
    assert Taken(taken, 0, 1).is_short is short
    assert not Taken(taken, 2 * MIB, 1).is_short
