"""Every public function of tensors gives the same on global tensors as on plain ones, or refuses in the same words.

Each example calls all functions with arguments of one shape, each function in a layout of its own. The suite has two
examples; `make conformance-long` has as many as one likes.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .every import DEVICES, alike, arguments, entries, fitting, layouts, other_names, outcome, sized

EXAMPLES = int(os.environ.get("TENSORD_EXAMPLES", "2"))  # of each function
EVERY = layouts()
SIZES = st.sampled_from([5, 3, 1, 0, 2, 4, 6, 7])  # on up to four devices: uneven, and with empty parts
SHAPES = st.one_of(
    SIZES.map(lambda n: (n, n)),
    st.tuples(SIZES, SIZES),
    st.tuples(SIZES, SIZES).map(lambda pair: (pair[0], pair[1], pair[1])),
    st.tuples(SIZES),
)


@pytest.fixture
def session(make_session: Any) -> Any:
    return make_session(devices=list(DEVICES))


@pytest.mark.timeout(3600)
@settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES, st.integers(0, len(EVERY) - 1), st.integers(0, 2**32 - 1))
def test_each_function_gives_the_same_of_global_tensors(session: Any, shape: Any, turn: int, seed: int) -> None:
    listed, names, values = entries(session), other_names(session), arguments(shape, seed)
    wrong = []
    for number, entry in enumerate(listed):
        text = sized(entry, shape)
        where, layout = EVERY[(turn + number) % len(EVERY)]
        used = {name: values[name] for name in values.keys() & re.findall(r"\w+", text)}
        expected = outcome(session, names, text, {name: session.asarray(value) for name, value in used.items()})
        tensors = {name: session.global_tensor(value, where, fitting(layout, value)) for name, value in used.items()}
        found = outcome(session, names, text, tensors)
        if not alike(found, expected):
            wrong.append(f"{text} of {shape}, {seed} on {where}, {layout}: {found!r} instead of {expected!r}")
    assert not wrong, "\n".join(wrong[:20])
    assert len(listed) > 300
