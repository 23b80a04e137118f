"""Distributions made of the incomplete gamma functions, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 16  # units in the last place
VALUES = [
    ("chdtr", (3.0, 2.0), 0.4275932955291202),
    ("chdtr", (40.0, 50.0), 0.8664251659143496),
    ("chdtrc", (3.0, 2.0), 0.5724067044708798),
    ("chdtrc", (40.0, 50.0), 0.1335748340856504),
    ("pdtr", (3.0, 2.0), 0.857123460498547),
    ("pdtr", (0.0, 0.5), 0.6065306597126334),
    ("pdtrc", (3.0, 2.0), 0.14287653950145296),
    ("pdtrc", (0.0, 0.5), 0.3934693402873666),
    ("gdtr", (2.0, 3.0, 0.5), 0.08030139707139419),
    ("gdtrc", (2.0, 3.0, 0.5), 0.9196986029286058),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))
