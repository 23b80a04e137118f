"""Inverses of incomplete gamma and beta functions and of distributions, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.ops.special import inverses

LIMIT = 32  # units in the last place
VALUES = [
    ("gammaincinv", (0.01, 0.5), 4.465535018910355e-31),
    ("gammaincinv", (0.5, 0.3), 0.07423593091627272),
    ("gammaincinv", (1.5, 1e-200), 5.6116528902273675e-134),
    ("gammaincinv", (2.0, 0.9), 3.8897201698674295),
    ("gammaincinv", (30.0, 0.01), 18.742425764901892),
    ("gammaincinv", (100000.0, 0.6), 100079.80329587657),
    ("gammaincinv", (12.67, 1e-190), 5.593348511587196e-15),
    ("gammaincinv", (0.1, 0.01), 6.073048362407899e-21),
    ("gammainccinv", (0.3, 1e-05), 8.823163326464668),
    ("gammainccinv", (0.5, 0.3), 0.5370970854287926),
    ("gammainccinv", (2.0, 1e-300), 697.3242113793526),
    ("gammainccinv", (7.5, 0.9), 4.273378120852272),
    ("gammainccinv", (30.0, 0.01), 44.18970945072466),
    ("gammainccinv", (100000.0, 0.6), 99919.57282767688),
    ("gammainccinv", (0.02, 0.001), 2.006320801776613),
    ("chdtri", (3.0, 0.05), 7.81472790325118),
    ("chdtri", (0.5, 0.3), 0.37469645674039437),
    ("chdtri", (100.0, 1e-10), 217.71420313830922),
    ("pdtri", (0.0, 0.3), 1.2039728043259361),
    ("pdtri", (2.0, 0.3), 3.6155676658659903),
    ("pdtri", (50.0, 0.999), 31.742020963951763),
    ("betaincinv", (0.5, 0.5, 0.1), 0.024471741852423217),
    ("betaincinv", (2.0, 3.0, 0.3), 0.27238394207510536),
    ("betaincinv", (5.0, 1.0, 0.999), 0.9997999199519664),
    ("betaincinv", (0.05, 12.0, 0.4), 5.574171850504981e-10),
    ("betaincinv", (2552.421040651771, 35.69615216637782, 6.933986940344809e-264), 0.7484777131834573),
    ("betaincinv", (1000.0, 2000.0, 0.975), 0.35030301672721004),
    ("betaincinv", (1000000.0, 1000000.0, 0.3), 0.4998145964039009),
    ("betaincinv", (0.02, 0.03, 0.6), 0.49800227898012606),
    ("bdtri", (0.0, 5.0, 0.3), 0.21399691440337723),
    ("bdtri", (2.0, 5.0, 0.3), 0.6101816494690416),
    ("bdtri", (30.0, 1000.0, 0.975), 0.021158171970208632),
    ("nbdtri", (0.0, 5.0, 0.3), 0.7860030855966228),
    ("nbdtri", (2.0, 5.0, 0.3), 0.5414453346826925),
    ("nbdtri", (30.0, 1000.0, 0.975), 0.9794608062932273),
    ("fdtri", (2.0, 3.0, 0.3), 0.40265143230557293),
    ("fdtri", (1.0, 2.0, 1e-100), 2e-200),
    ("fdtri", (5.0, 7.0, 0.99), 7.460435492989263),
    ("fdtri", (300.0, 0.5, 0.5), 5.709121803402804),
    ("stdtrit", (0.5, 0.3), -1.0095258786071661),
    ("stdtrit", (2.0, 0.3), -0.6172133998483676),
    ("stdtrit", (5.0, 0.5000001), 2.634305522753727e-07),
    ("stdtrit", (10.0, 1e-30), -2564.5239317426153),
    ("stdtrit", (100.0, 0.975), 1.9839715185235518),
    ("stdtrit", (1000000.0, 0.999), 3.0902404563165193),
    ("stdtrit", (0.5, 1e-50), -1.02849115631634e99),
]


# Where the distribution is flat, a unit in the last place of the probability is so many of the inverse. How the last
# ones fall depends on the processor, for which NumPy has exponentials and logarithms of its own.
FLAT = {("betaincinv", (0.02, 0.03, 0.6)): 26}


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    limit = LIMIT + 2 * FLAT.get((name, operands), 0)
    assert abs(found - expected) <= limit * np.spacing(abs(expected))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("gammaincinv", (2.0, 0.0), 0.0),
        ("gammaincinv", (2.0, 1.0), np.inf),
        ("gammaincinv", (0.0, 1.0), np.inf),
        ("gammaincinv", (2.0, 1.5), np.nan),
        ("gammaincinv", (-1.0, 0.3), np.nan),
        ("gammaincinv", (np.inf, 0.3), np.nan),
        ("gammaincinv", (1e-05, 0.3), 0.0),
        ("gammainccinv", (2.0, 0.0), np.inf),
        ("gammainccinv", (2.0, 1.0), 0.0),
        ("gammainccinv", (2.0, np.nan), np.nan),
        ("chdtri", (0.0, 0.3), np.nan),
        ("pdtri", (2.0, 1.0), np.nan),
        ("pdtri", (-1.0, 0.3), np.nan),
        ("pdtri", (2.0, 0.0), np.inf),
        ("betaincinv", (2.0, 3.0, 0.0), 0.0),
        ("betaincinv", (2.0, 3.0, 1.0), 1.0),
        ("betaincinv", (np.inf, 1.0, 0.3), 1.0),
        ("betaincinv", (1.0, np.inf, 0.3), 0.0),
        ("betaincinv", (np.inf, np.inf, 0.3), np.nan),
        ("betaincinv", (0.0, 1.0, 0.3), np.nan),
        ("betaincinv", (1e-300, 1.0, 0.3), 0.0),
        ("bdtri", (2.0, 5.0, 0.0), 1.0),
        ("bdtri", (2.0, 5.0, 1.0), 0.0),
        ("bdtri", (5.0, 5.0, 0.3), np.nan),
        ("bdtri", (-0.5, 5.0, 0.3), np.nan),
        ("nbdtri", (2.0, 5.0, 1.0), 1.0),
        ("nbdtri", (2.0, 0.0, 0.3), np.nan),
        ("fdtri", (2.0, 3.0, 0.0), 0.0),
        ("fdtri", (2.0, 3.0, 1.0), np.inf),
        ("fdtri", (np.inf, 1.0, 0.3), np.nan),
        ("stdtrit", (2.0, 0.0), -np.inf),
        ("stdtrit", (2.0, 1.0), np.inf),
        ("stdtrit", (2.0, 0.5), 0.0),
        ("stdtrit", (0.0, 0.3), np.nan),
        ("stdtrit", (2.0, 1.1), np.nan),
    ],
)
def test_ends_and_what_lies_outside(evaluate, name, operands, expected):
    np.testing.assert_equal(evaluate(name, *map(np.asarray, operands))[()], expected)


def grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters and probabilities of all magnitudes, their complements' too."""
    probabilities = [1e-300, 1e-30, 1e-5, 0.03, 0.3, 0.5, 0.7, 0.97, 1 - 1e-9]
    a, b, p = np.meshgrid(*[10.0 ** np.arange(-1.5, 4.5, 0.5)] * 2, probabilities)
    return a.ravel(), b.ravel(), p.ravel()


@pytest.mark.parametrize(("inverse", "function"), [("gammaincinv", "gammainc"), ("gammainccinv", "gammaincc")])
def test_an_inverse_of_the_gamma_functions_leads_back(evaluate, inverse, function):
    a, _, p = grid()
    x = evaluate(inverse, a, p)
    seen = x > 1e-300
    np.testing.assert_allclose(evaluate(function, a, x)[seen], p[seen], rtol=1e-11)


def test_the_inverse_of_the_beta_function_leads_back(evaluate):
    a, b, p = grid()
    x = evaluate("betaincinv", a, b, p)
    back = evaluate("betainc", a, b, x)
    coarse = (x < 1e-300) | (x > 0.999)  # x near 1 holds few digits of its distance to it
    np.testing.assert_allclose(back[~coarse], p[~coarse], rtol=1e-10)
    assert seen_around(evaluate, a, b, p, x)[x > 1e-300].all()


def seen_around(evaluate, a, b, p, x):
    """Does the value lie between those of the neighbours?"""
    low, high = (evaluate("betainc", a, b, np.clip(x * (1 + sign * 1e-14), 0, 1)) for sign in (-1, 1))
    return (low <= p * (1 + 1e-11)) & (p <= high * (1 + 1e-11))


@pytest.mark.parametrize("name", ["gammaincinv", "gammainccinv", "betaincinv"])
def test_a_third_of_the_steps_is_enough(evaluate, monkeypatch, name):
    """From where they begin, for all magnitudes of parameters and probabilities."""
    monkeypatch.setattr(inverses, "STEPS", inverses.STEPS // 3)
    a, b, p = grid()
    operands = (a, b, p) if name == "betaincinv" else (a, p)
    few = evaluate(name, *operands)
    monkeypatch.undo()
    np.testing.assert_array_equal(few, evaluate(name, *operands))


def test_bad_starts_are_mended_by_the_bounds(evaluate, monkeypatch):
    expected = evaluate("gammaincinv", np.array([0.3, 2.5, 30.0]), np.array([0.2, 0.9, 0.5]))
    monkeypatch.setattr(inverses, "gamma_start", lambda xp, a, *_: xp.full_like(a, 1e-280))
    found = evaluate("gammaincinv", np.array([0.3, 2.5, 30.0]), np.array([0.2, 0.9, 0.5]))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
