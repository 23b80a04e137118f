"""Exponential integrals and powers, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 16  # units in the last place
VALUES = [
    ("exp1", (1e-300,), 690.1983122333122),
    ("exp1", (0.3,), 0.9056766516758468),
    ("exp1", (1.0,), 0.21938393439552029),
    ("exp1", (1.0001,), 0.219347150129891),
    ("exp1", (5.0,), 0.0011482955912753257),
    ("exp1", (700.0,), 1.406518766234033e-307),
    ("expi", (1e-09,), -20.146050171044877),
    ("expi", (0.1,), -1.6228128139692766),
    ("expi", (1.0,), 1.8951178163559368),
    ("expi", (39.9,), 5479032048901894.0),
    ("expi", (40.1,), 6657825191607100.0),
    ("expi", (712.9,), 5.703192298553694e306),
    ("expi", (-2.0,), -0.04890051070806112),
    ("expn", (1.0, 0.3), 0.9056766516758468),
    ("expn", (2.0, 1.0), 0.14849550677592205),
    ("expn", (3.0, 1.3), 0.07357629042741223),
    ("expn", (1.0, 1.0001), 0.219347150129891),
    ("expn", (2.0, 1e-09), 0.9999999788539499),
    ("expn", (4.0, 30.0), 2.7613332813973074e-15),
    ("expn", (100.0, 0.5), 0.006095474587318909),
    ("expn", (10000.0, 2.0), 1.353217483553423e-05),
    ("expn", (5.0, 700.0), 1.3985497097109522e-307),
    ("exp10", (-300.5,), 3.1622776601683794e-301),
    ("exp10", (-1.0,), 0.1),
    ("exp10", (0.3,), 1.9952623149688795),
    ("exp10", (3.0,), 1000.0),
    ("exprel", (1e-20,), 1.0),
    ("exprel", (1e-05,), 1.0000050000166667),
    ("exprel", (-40.0,), 0.025),
    ("exprel", (700.0,), 1.4489029353357207e301),
    ("boxcox", (2.0, 0.5), 0.8284271247461901),
    ("boxcox", (0.3, 1e-12), -1.2039728043252114),
    ("boxcox", (5.0, -3.0), 0.33066666666666666),
    ("inv_boxcox", (2.0, 0.5), 4.0),
    ("inv_boxcox", (0.3, 1e-12), 1.3498588075759423),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("expn", (0.0, 0.0), np.inf),
        ("expn", (1.0, 0.0), np.inf),
        ("expn", (3.0, 0.0), 0.5),
        ("expn", (1.0, np.inf), 0.0),
        ("expn", (-1.0, 1.0), np.nan),
        ("expn", (1.0, -1.0), np.nan),
        ("expn", (np.inf, 1.0), np.nan),
        ("expn", (1.0, np.nan), np.nan),
    ],
)
def test_ends_of_the_integrals_of_any_order(evaluate, name, operands, expected):
    np.testing.assert_equal(evaluate(name, *map(np.asarray, operands))[()], expected)
