"""Every op has a rule or says why not, and each signature of a rule holds: op by op, on shares, without any machine.

The calls are those of tests/gpu/op_cases.py, some of them in the suite, more in the long run (make conformance-long).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy as np

from tensord.interpreter.layouts.rules import signatures
from tensord.interpreter.schema.opdef import REGISTRY, OpDef, find

from ...each_case import each_case
from ...gpu.op_cases import SPECIAL, Case, cases, dtypes_of
from .checking import call_of, check, check_on_grid

EXAMPLES = int(os.environ.get("TENSORD_CONFORMANCE_EXAMPLES", "2"))
LARGEST = 5000  # elements of a result: larger ones cost time, and show no more errors
RULED = [name for name, op in REGISTRY.items() if not isinstance(op.layouts, str)]


def test_every_op_has_a_rule_or_a_reason():
    assert [name for name, op in REGISTRY.items() if op.layouts == ""] == []


def test_reasons_are_those_of_few_families():
    reasons = {op.layouts for op in REGISTRY.values() if isinstance(op.layouts, str)}
    assert len(reasons) <= 3, reasons


def test_an_op_whose_shape_data_decide_has_no_rule():
    assert [op.name for op in REGISTRY.values() if op.dynamic and not isinstance(op.layouts, str)] == []


def drawn(op: OpDef, rng: random.Random) -> Iterator[Case]:
    """Some calls of the op, of a few dtypes."""
    every = dtypes_of(op)
    for dtype in rng.sample(every, min(2 if EXAMPLES < 10 else len(every), len(every))):
        found = [case for case in cases(op, dtype, most=16) if is_small(case)]
        yield from rng.sample(found, min(EXAMPLES, len(found)))


def is_small(case: Case) -> bool:
    sizes = [x.size for x in case.operands if isinstance(x, np.ndarray)]
    of_pairs = case.op == "outer" and case.what in (SPECIAL, "long")
    return not case.strided and not of_pairs and max(sizes, default=0) < LARGEST


@each_case("name", RULED)
def test_each_signature_holds_on_shares(name: str):
    rng = random.Random(f"{name} on shares")
    for case in drawn(find(name), rng):
        for parts in (2, 3) if EXAMPLES >= 10 else (rng.choice((2, 3)),):
            check(name, case.operands, case.attributes, parts)


@each_case("name", RULED)
def test_signatures_hold_one_dimension_of_a_grid_after_the_other(name: str):
    rng = random.Random(f"{name} on grids")
    for case in drawn(find(name), rng):
        check_on_grid(name, case.operands, case.attributes, rng.choice([(2, 2), (3, 2), (1, 3)]), rng)


@each_case("name", RULED)
def test_each_rule_offers_more_than_the_whole(name: str):
    op = find(name)
    for dtype in dtypes_of(op):
        for case in cases(op, dtype, most=40):
            if is_small(case) and check_offers(case):
                return
    raise AssertionError("no call of it can be divided")


def check_offers(case: Case) -> bool:
    call = call_of(case.op, case.operands, case.attributes)
    return len(signatures(find(case.op), [call], 2)) > 1
