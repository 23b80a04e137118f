"""Names of NumPy that differ in the standard: the error names the replacement, and the replacement works."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import tensord
from tensord.client.array_api.namespace import public_names
from tensord.client.session.session import Session
from tensord.client.tensor import hints
from tensord.client.tensor.tensor import Tensor

from ...each_case import each_case

OLD = {"alltrue", "fix", "in1d", "row_stack", "ptp"}  # former functions of NumPy
# Names that users of PyTorch, CuPy and JAX try.
ELSEWHERES_FUNCTIONS = {
    *hints.words("as_tensor bmm cat clamp div from_numpy gather mm mul neg norm sub tensor"),
    *hints.DECOMPOSITIONS,
}
TORCH = {
    *hints.words(
        "add_ amax amin bmm broadcast_to chunk clamp clone copy_ cpu cuda data dim div div_ double element_size"
    ),
    *hints.words("eq expand fill_ float gather ge gt half index_select int inverse is_cuda le long lt masked_fill"),
    *hints.words("masked_select mm moveaxis mul mul_ ne neg norm numel permute pin_memory put quantile roll split sub"),
    *hints.words("sub_ t tile to topk type unbind unsqueeze zero_"),
}
GPU = {"at", "block_until_ready", "get", "set"}  # of CuPy's and JAX's arrays
PLAIN = {
    "cumulative_prod",
    "cumulative_sum",
    *hints.UNARY,
    *hints.BINARY,
    *hints.NN,
    *hints.DECOMPOSITIONS,
}  # the name itself is a function of ours


@each_case("name", hints.FUNCTIONS)
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
    assert {name for name in hints.FUNCTIONS if name not in dir(np)} <= OLD | ELSEWHERES_FUNCTIONS
    assert {name for name in hints.METHODS if not hasattr(np.ndarray, name)} <= TORCH | OLD | GPU | PLAIN


def test_the_names_of_the_namespace_are_complete():
    """So that tensors, sessions and the module know the owner of each function."""
    assert {*hints.UNARY, *hints.BINARY, *hints.OTHERS} == set(public_names())


@each_case("name", hints.AUTOGRAD)
def test_who_looks_for_gradients_is_told_that_there_is_no_autograd(session, name):
    for owner in (session.asarray([1.0]), session, session.nn, session.xp, tensord):
        with pytest.raises(
            AttributeError, match=rf"has no attribute '{name}': tensord has no automatic differentiation"
        ):
            getattr(owner, name)


@pytest.mark.parametrize(("owner", "table"), [("session", hints.SESSION), ("tensord", hints.MODULE)])
def test_a_name_that_is_elsewhere_says_where_and_it_is_there(session, owner, table):
    names = {"session": session, "tensord": tensord}
    for name, instead in table.items():
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; did you mean ") as caught:
            getattr(names[owner], name)
        assert instead in str(caught.value)
        eval(instead, names)  # noqa: S307 - the table is ours
        assert name not in dir(names[owner])


@each_case("name", hints.LAYERS)
def test_a_layer_says_which_function_to_use(session, name):
    instead = hints.LAYERS[name]
    with pytest.raises(AttributeError, match=rf"session\.nn has no attribute '{name}'; did you mean ") as caught:
        getattr(session.nn, name)
    assert instead in str(caught.value)
    one = session.asarray([[1.0]])
    assert eval(instead, {"session": session, "x": one, "w": one, "b": one}) is not None  # noqa: S307
    assert name not in dir(session.nn)


@each_case("name", hints.ELSEWHERE)
def test_a_name_of_the_sessions_says_so_in_the_namespace(session, name):
    with pytest.raises(AttributeError, match=f"did you mean '{hints.ELSEWHERE[name]}'"):
        getattr(session.xp, name)


@each_case("name", hints.METHODS)
def test_a_method_of_numpys_arrays_says_what_to_write_and_that_works(session, name):
    dtype = "bool" if "logical" in name else "int64" if "bitwise" in name else "float64"
    x = session.asarray(np.asarray([[1, 2], [3, 4]], dtype))
    instead = hints.METHODS[name]
    with pytest.raises(AttributeError, match=rf"^a tensor has no attribute '{name}'; did you mean ") as caught:
        getattr(x, name)
    assert instead in str(caught.value)
    assert not hasattr(x, name)
    assert name not in dir(x)
    line = x[0] if "take" in instead or "searchsorted" in instead else x
    names: dict[str, Any] = {"x": line, "y": x, "xp": session.xp, "low": 0.0, "high": 1.0, "value": 1.0}
    names |= {"axes": (1, 0), "shape": (2, 2), "dtype": "float32", "indices": session.asarray([0])}
    names |= {
        "values": session.asarray(2.5),
        "mask": line != line[0],
        "device": "cpu:0",
        "index": 0,
        "session": session,
    }
    for each in instead.split(" or "):
        exec(each, names)  # noqa: S102 - the table is ours


def test_a_tensor_has_no_absent_attribute_of_its_own():
    """A hint in front of a method would take the method away."""
    for cls in Tensor.__mro__[1:]:
        assert not hints.METHODS.keys() & vars(cls).keys()
    assert all(type(vars(Tensor)[name]) is hints.Absent for name in hints.METHODS)
    assert not {*hints.SESSION, *hints.AUTOGRAD} & {name for cls in Session.__mro__[1:] for name in vars(cls)}


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
