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
