"""NumPy's names that the standard has otherwise: the error says what to write, and that works."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from tensord.client.array_api import hints
from tensord.client.tensor import Tensor

OLD = {"alltrue", "fix", "in1d", "row_stack", "ptp"}  # what NumPy had once
TORCH = {"clone", "cpu", "permute", "unsqueeze"}  # what PyTorch's users look for


@pytest.mark.parametrize("name", hints.FUNCTIONS)
def test_a_name_of_numpys_says_what_to_use(session, name):
    xp, instead = session.xp, hints.FUNCTIONS[name]
    assert callable(attrgetter(instead)(xp))
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean '{instead}'\\?$"):
        getattr(xp, name)
    assert not hasattr(xp, name)


@pytest.mark.parametrize("extension", hints.EXTENSIONS)
def test_names_of_extensions_say_what_to_use(session, extension):
    there = getattr(session.xp, extension)
    for name, instead in hints.EXTENSIONS[extension].items():
        assert hasattr(getattr(np, extension), name)
        assert all(hasattr(there, each) for each in instead.split(" or "))
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean '"):
            getattr(there, name)


def test_hints_are_about_names_that_numpy_has():
    assert {name for name in hints.FUNCTIONS if name not in dir(np)} <= OLD
    assert {name for name in hints.METHODS if not hasattr(np.ndarray, name)} <= TORCH | OLD


@pytest.mark.parametrize("name", hints.METHODS)
def test_a_method_of_numpys_arrays_says_what_to_write_and_that_works(session, name):
    x = session.asarray([[1.0, 2.0], [3.0, 4.0]])
    instead = hints.METHODS[name]
    with pytest.raises(AttributeError, match=rf"^a tensor has no attribute '{name}'; did you mean ") as caught:
        getattr(x, name)
    assert instead in str(caught.value)
    assert not hasattr(x, name)
    assert name not in dir(x)
    line = x[0] if "take" in instead or "searchsorted" in instead else x
    names: dict[str, Any] = {"x": line, "y": x, "xp": session.xp, "low": 0.0, "high": 1.0, "value": 1.0}
    names |= {"axes": (1, 0), "shape": (4,), "dtype": "float32", "indices": session.asarray([0])}
    names |= {"values": session.asarray(2.5)}
    for each in instead.split(" or "):
        exec(each, names)  # noqa: S102 - the table is ours


def test_a_tensor_has_no_absent_attribute_of_its_own():
    """A hint in front of a method would take the method away."""
    for cls in Tensor.__mro__[1:]:
        assert not hints.METHODS.keys() & vars(cls).keys()
    assert all(vars(Tensor)[name] is hints.ABSENT[name] for name in hints.METHODS)


def test_a_function_of_numpy_called_with_a_tensor_says_which_of_ours_to_use(session):
    x = session.asarray([1.0])
    for function, instead in ((np.absolute, "abs"), (np.add, "add"), (np.concatenate, "concat"), (np.sum, "sum")):
        with pytest.raises(
            TypeError, match=rf"numpy\.{function.__name__} does not take tensors: use session\.xp\.{instead},"
        ):
            function([x] if function is np.concatenate else x, *[x] * (function is np.add))
    with pytest.raises(TypeError, match=r"use session\.xp's functions"):
        np.heaviside(x, x)


def test_python_still_guesses_at_what_was_mistyped(session):
    with pytest.raises(AttributeError, match=r"has no attribute 'concatt'$") as caught:
        _ = session.xp.concatt
    assert (caught.value.name, "concat" in dir(caught.value.obj)) == ("concatt", True)
