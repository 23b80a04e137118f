"""A routine beside its function: the same calls on equal arguments, compared to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tensord.client.routines.routine import Routine
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor


def compared(
    session: Session, function: Callable[..., Any], *calls: Sequence[Any], draws: int = 3
) -> Routine[..., Any]:
    """Call the function, and a routine of it, with each list of arguments; the results and arguments are then equal.

    NumPy arrays among the arguments become tensors. Both draw the same random numbers. Returns the routine.
    """
    found = []
    routine = session.routine(function)
    for called in (function, routine):
        session.random.seed(draws)
        given = [sent(session, copy.deepcopy(list(arguments))) for arguments in calls]
        results = [called(*arguments) for arguments in given]
        found.append([read(result) for result in results] + [read(each) for each in given])
    assert equal(*found), f"{found[0]}\nis not\n{found[1]}"
    return routine


def sent(session: Session, value: Any) -> Any:
    """The value with tensors for arrays."""
    if isinstance(value, np.ndarray):
        return session.asarray(value)
    return over(value, lambda each: sent(session, each))


def read(value: Any) -> Any:
    """The value with arrays for tensors."""
    if isinstance(value, Tensor):
        return (value.numpy(), value.device)
    return over(value, read)


def over(value: Any, function: Callable[[Any], Any]) -> Any:
    """A container with the function's results for its members; anything else as it is."""
    if isinstance(value, dict):
        return {key: function(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(function, value))
    if type(value) in (list, tuple):
        return type(value)(map(function, value))
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{each.name: function(getattr(value, each.name)) for each in fields(value)})
    return value


def equal(one: Any, other: Any) -> bool:
    """Are both of the same types, and equal to the last bit?"""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if is_dataclass(one):
        return all(equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return bool(repr(one) == repr(other))
