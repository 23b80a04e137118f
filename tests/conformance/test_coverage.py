"""Every function of the namespace is in a table of the differential tests."""

from __future__ import annotations

from tensord.client.tensor.operators import BINARY, COMPARISONS

from .test_against_numpy_beyond import BEYOND
from .test_against_scipy_special import SPECIAL
from .test_against_strict_creation import CREATION
from .test_against_strict_data_types import DATA_TYPES
from .test_against_strict_elementwise import ELEMENTWISE
from .test_against_strict_fft import FFT
from .test_against_strict_linalg import LINALG
from .test_against_strict_manipulation import MANIPULATION
from .test_against_strict_reductions import REDUCTIONS
from .test_operators import IN_PLACE, OPERATORS, UNARY

TABLES = (BEYOND, CREATION, DATA_TYPES, ELEMENTWISE, FFT, LINALG, MANIPULATION, REDUCTIONS, SPECIAL)
EXTENSIONS = ("fft", "linalg", "special")


def functions(namespace):
    """The names of its functions; dtypes can be called, too."""
    found = {name: getattr(namespace, name) for name in dir(namespace) if not name.startswith("_")}
    return {name for name, one in found.items() if callable(one) and not isinstance(one, type)}


def test_every_function_is_compared(session):
    xp = session.xp
    expected = {name for name in functions(xp) if name not in EXTENSIONS}
    for extension in EXTENSIONS:
        expected |= {f"{extension}.{name}" for name in functions(getattr(xp, extension))}
    named = [name for table in TABLES for name in table]
    assert len(named) == len(set(named)), "a function is in two tables"
    assert set(named) == expected


def test_every_operator_is_compared():
    assert set(OPERATORS) == {*map(function_name, (*BINARY, *COMPARISONS)), *UNARY.split()}
    assert set(IN_PLACE) == {f"i{name}" for name in map(function_name, BINARY)}


def function_name(name: str) -> str:
    """Its name in the module `operator`."""
    return {"and": "and_", "or": "or_"}.get(name, name)
