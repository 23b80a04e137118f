"""Functions of degrees and elliptic integrals, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 4  # units in the last place
VALUES = [
    ("cosm1", (1e-09,), -5e-19),
    ("cosm1", (0.3,), -0.04466351087439398),
    ("cosm1", (6.283193122645021,), -3.054074997939403e-11),
    ("sindg", (30.0,), 0.5),
    ("sindg", (1e-09,), 1.7453292519943298e-11),
    ("sindg", (45.0,), 0.7071067811865476),
    ("sindg", (359.9,), -0.0017453283658987056),
    ("sindg", (-1931.0,), -0.754709580222772),
    ("cosdg", (60.0,), 0.5),
    ("cosdg", (1e-09,), 1.0),
    ("cosdg", (89.999,), 1.7453292519140536e-05),
    ("cosdg", (359.9,), 0.9999984769132877),
    ("tandg", (45.0,), 1.0),
    ("tandg", (1e-09,), 1.7453292519943298e-11),
    ("tandg", (89.999,), 57295.77950699098),
    ("tandg", (-596.719569811855,), -1.523488235555628),
    ("cotdg", (45.0,), 1.0),
    ("cotdg", (1.2158663086290404e-07,), 471234206.47856116),
    ("cotdg", (89.999,), 1.7453292521798824e-05),
    ("ellipk", (-100.0,), 0.368219248609141),
    ("ellipk", (0.0,), 1.5707963267948966),
    ("ellipk", (0.5,), 1.8540746773013719),
    ("ellipk", (0.999999,), 8.294051463601063),
    ("ellipkm1", (1e-30,), 35.92507075603058),
    ("ellipkm1", (1e-09,), 11.747927282280077),
    ("ellipkm1", (0.5,), 1.8540746773013719),
    ("ellipkm1", (1000000.0,), 0.00829405146361544),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))
