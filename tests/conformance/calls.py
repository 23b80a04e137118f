"""A call of a function of the standard, to be made in several namespaces: ours, array_api_strict and NumPy.

In a `Call` a NumPy array stands for a tensor, a NumPy dtype for a dtype, `DEVICE` for a device, and `Host` for a value
that a namespace gets unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
from hypothesis import strategies as st

from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

DEVICE = object()


@dataclass(frozen=True)
class Host:
    """A value that no namespace translates."""

    value: Any


@dataclass(frozen=True)
class Call:
    """Arguments of a function."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Side(NamedTuple):
    """A namespace, and its types of tensors, dtypes and devices."""

    namespace: Any
    tensor: Callable[[np.ndarray], Any]
    dtype: Callable[[np.dtype], Any]
    device: str | None


# Arrays are copied, since operators may write to them.
NUMPY = Side(np, np.copy, lambda dtype: dtype, None)
STRICT = Side(
    array_api_strict,
    lambda array: array_api_strict.asarray(array, copy=True),
    lambda dtype: getattr(array_api_strict, dtype.name),
    None,
)


def ours(session: Session, device: str) -> Side:
    """The namespace of a session, with tensors on that device."""
    return Side(session.xp, lambda array: session.asarray(array, device), lambda dtype: dtype, device)


def call(*args: Any, **kwargs: Any) -> st.SearchStrategy[Call]:
    """Calls with arguments from these strategies."""
    return st.builds(Call, st.tuples(*args), st.fixed_dictionaries(kwargs))


def make(function: Callable[..., Any], made: Call, side: Side) -> Any:
    """Make the call with the arguments translated for that namespace."""
    return function(*(translate(arg, side) for arg in made.args), **translate(dict(made.kwargs), side))


def find(namespace: Any, name: str) -> Any:
    """A function of the namespace, or of one of its extensions, such as "linalg.det"."""
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def translate(value: Any, side: Side) -> Any:
    """An argument, translated for that namespace."""
    if isinstance(value, np.ndarray):
        return side.tensor(value)
    if isinstance(value, np.dtype):
        return side.dtype(value)
    if isinstance(value, Host):
        return value.value
    if isinstance(value, dict):
        return {key: translate(each, side) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(translate(each, side) for each in value)
    return side.device if value is DEVICE else value


def leaves(result: Any) -> list[Any]:
    """The tensors of a result that is one, or several."""
    return [leaf for each in result for leaf in leaves(each)] if isinstance(result, list | tuple) else [result]


def form(result: Any) -> Any:
    """The structure of a result of tensors: the names of a named tuple's fields, and lists against tuples."""
    if not isinstance(result, list | tuple):
        return None
    fields = getattr(result, "_fields", None)
    return (fields or ("list" if isinstance(result, list) else "tuple"), [form(each) for each in result])


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Call it without floating-point errors and warnings."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args)


def host(leaf: Any) -> Any:
    """A result of one of the references, as NumPy arrays."""
    if isinstance(leaf, array_api_strict._array_object.Array):
        return leaf._array
    if isinstance(leaf, array_api_strict._dtypes.DType):
        return leaf._np_dtype
    return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf


def fetched(session: Session, results: Sequence[Any]) -> list[Any]:
    """Our results with tensors as arrays, fetched at once; they match the tensors' shapes and dtypes."""
    tensors = [leaf for leaf in results if isinstance(leaf, Tensor)]
    arrays = iter(session.fetch(tensors))
    found = [next(arrays) if isinstance(leaf, Tensor) else leaf for leaf in results]
    for leaf, array in zip(results, found, strict=True):
        if isinstance(leaf, Tensor):
            assert (leaf.shape, leaf.dtype, leaf.ndim, leaf.size) == (array.shape, array.dtype, array.ndim, array.size)
    return found
