"""The incomplete gamma functions, in each of their regions, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 192  # units in the last place
VALUES = [
    ("gammainc", (1e-08, 1e-09), 0.9999997985395185),
    ("gammainc", (0.5, 0.8), 0.7940967892679317),
    ("gammainc", (3.3, 0.8), 0.029597057727213903),
    ("gammainc", (3.3, 9.0), 0.9906841597564863),
    ("gammainc", (24.0, 20.0), 0.21250718321157258),
    ("gammainc", (25.0, 25.0), 0.5266015314436506),
    ("gammainc", (201.24, 160.05), 0.0009500922123884116),
    ("gammainc", (1000.0, 1010.0), 0.6276789447369947),
    ("gammaincc", (1e-08, 0.5), 5.597735977099587e-09),
    ("gammaincc", (0.506, 0.8015), 0.20835527575078447),
    ("gammaincc", (0.1683, 1.1394), 0.03476818751060552),
    ("gammaincc", (0.3848, 1.4939), 0.058800244861237236),
    ("gammaincc", (3.3, 9.0), 0.009315840243513769),
    ("gammaincc", (24.0, 40.0), 0.002555332050389828),
    ("gammaincc", (25.0, 26.0), 0.39592656999982845),
    ("gammaincc", (200.0, 250.0), 0.00048221275959343376),
    ("gammaincc", (1000.0, 1010.0), 0.3723210552630053),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))
