"""No function takes an array of NumPy's, or a list, for a tensor: that would be a copy nobody asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ..each_case import each_case
from .calls import Call, Host, find, leaves, make, ours
from .judge import Entry, Refusal, expect
from .test_coverage import TABLES
from .test_operators import OPERATORS, UNARY

TAKERS = {"asarray", "from_dlpack"}  # that is what they are for
FUNCTIONS = {name: entry for table in TABLES for name, entry in table.items() if name not in TAKERS}


def untaken(value: Any) -> Any:
    """The argument, with a NumPy array in place of each tensor."""
    if isinstance(value, np.ndarray):
        return Host(value)
    return type(value)(map(untaken, value)) if isinstance(value, list | tuple) else value


@each_case("name", FUNCTIONS)
def test_arrays_are_refused_as_what_they_are(name, session):
    entry: Entry = FUNCTIONS[name]

    @settings(max_examples=2, suppress_health_check=list(HealthCheck))
    @given(entry.calls)
    def refuses(made: Call) -> None:
        has_tensors = any(isinstance(each, np.ndarray) for each in leaves([*made.args, *made.kwargs.values()]))
        if not has_tensors or isinstance(expect(name, entry, made), Refusal):
            return
        arrays = Call(untaken(made.args), {key: untaken(value) for key, value in made.kwargs.items()})
        with pytest.raises(TypeError):
            make(find(session.xp, name), arrays, ours(session, "cpu:0"))

    refuses()


@each_case("name", [name for name in OPERATORS if name not in UNARY.split()])
def test_arrays_are_refused_on_either_side_of_an_operator(name, session):
    array = np.ones((2, 2), "int8")
    x = session.asarray(array)
    operates = OPERATORS[name].operates
    assert operates
    for operands in ((x, array), (array, x)):
        with pytest.raises(TypeError):
            operates(*operands)
