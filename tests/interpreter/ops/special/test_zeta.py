"""Zeta functions, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 64  # units in the last place
VALUES = [
    ("riemann_zeta", (1.0001,), 10000.577222947539),
    ("riemann_zeta", (2.0,), 1.6449340668482264),
    ("riemann_zeta", (13.3,), 1.0000996134072075),
    ("riemann_zeta", (0.5,), -1.4603545088095868),
    ("riemann_zeta", (0.0,), -0.5),
    ("riemann_zeta", (-0.1,), -0.41722804076736686),
    ("riemann_zeta", (-0.9,), -0.10119350398535189),
    ("riemann_zeta", (-3.5,), 0.004441011335479432),
    ("riemann_zeta", (-31.5,), 750878449.993701),
    ("hurwitz_zeta", (1.001, 0.3), 1003.5065062289976),
    ("hurwitz_zeta", (2.0, 0.001), 1000001.6425331958),
    ("hurwitz_zeta", (3.0, 50.0), 0.00020403999466879846),
    ("zetac", (1.5,), 1.6123753486854884),
    ("zetac", (20.0,), 9.539620338727962e-07),
    ("zetac", (127.0,), 5.877471754111438e-39),
    ("zetac", (400.0,), 3.8725919148493183e-121),
    ("polygamma", (0.0, 2.5), 0.7031566406452432),
    ("polygamma", (1.0, 0.3), 12.245364546107732),
    ("polygamma", (5.0, 20.0), 8.48426620615823e-06),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))
