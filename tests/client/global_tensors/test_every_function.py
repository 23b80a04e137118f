"""Every public function of tensors gives on global tensors what it gives on plain ones, or refuses in the same words.

Each is called with some layouts; `TENSORD_LAYOUTS=1` calls each with all of them.
"""

from __future__ import annotations

import os
import re

from ..public_entries import names_for
from .every import ARGUMENTS, DEVICES, alike, entries, fitting, layouts, outcome

STRIDE = int(os.environ.get("TENSORD_LAYOUTS", "32"))  # one of so many layouts


def test_each_function_gives_the_same_of_global_tensors(make_session):
    session = make_session(devices=list(DEVICES))
    values = {name: tensor.numpy() for name, tensor in names_for(session).items() if name in ARGUMENTS}
    listed, every = entries(session), list(layouts())
    wrong = []
    for number, entry in enumerate(listed):
        used = {name: values[name] for name in values.keys() & re.findall(r"\w+", entry.text)}
        expected = outcome(session, entry.text, {name: session.asarray(value) for name, value in used.items()})
        for where, layout in every[number % STRIDE :: STRIDE]:
            tensors = {
                name: session.global_tensor(value, where, fitting(layout, value)) for name, value in used.items()
            }
            found = outcome(session, entry.text, tensors)
            if not alike(found, expected):
                wrong.append(f"{entry.text} on {where}, {layout}: {found!r} instead of {expected!r}")
    assert not wrong, "\n".join(wrong[:20])
    assert len(listed) > 300
