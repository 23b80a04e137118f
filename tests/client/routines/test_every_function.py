"""Every public function of tensors, captured, gives the same values as op by op, or raises that it needs a value."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tensord.client.capture.symbolic import REFUSED
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

from ..public_entries import OPERATED, REDUCTIONS, TENSOR, Entry, functions, names_for, operators
from .compared import equal, read

ARGUMENTS = ("x", "z", "i", "b", "one", "v")  # of the names in the texts: tensors
WAITING = {*REFUSED, "error", "random.seed"}  # functions that need a value, or have no place in a program


def chosen(session: Session) -> Iterator[Entry]:
    """The functions and methods of tensors."""
    yield from functions(session.xp, "xp")
    yield from functions(session.xp.linalg, "xp.linalg")
    yield from functions(session.xp.fft, "xp.fft")
    yield from functions(session.xp.special, "xp.special")
    yield from functions(session.nn, "nn")
    yield from functions(session.random, "random")
    yield from operators()
    yield from (Entry(name, f"x.{name}", given) for name, given in TENSOR.items())
    yield from (Entry(name, f"x.{name}", "") for name in REDUCTIONS)
    yield from (Entry(name, function, given) for name, (function, given) in OPERATED.items())


def outcome(called: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The values of the result and of the arguments, or the error, without the line and the description of a tensor."""
    try:
        result = called(**tensors)
        found = list(result) if isinstance(result, map | zip) else result
        core: Any = tensors["x"]._core
        return [
            "no error",
            read(found),
            core.as_session().fetch(tensors.values()),
            [each.device for each in tensors.values()],
        ]
    except Exception as error:
        text = re.sub("<tensor .*>", "<tensor>", str(error).split(" [")[0])
        return [type(error).__name__, text.replace("SymbolicTensor", "Tensor")]


def test_each_function_gives_the_same(session):
    names = names_for(session)
    values = {name: names[name].numpy() for name in ARGUMENTS}
    listed = list(chosen(session))
    unequal, refused = [], set()
    for entry in listed:
        known = {name: value for name, value in names.items() if name not in ARGUMENTS}
        function = eval(f"lambda {', '.join(ARGUMENTS)}: {entry.text}", known)  # noqa: S307 - texts of the tests
        found = []
        for called in (function, session.routine(function)):
            session.random.seed(11)
            tensors = {name: session.asarray(value) for name, value in values.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(outcome(called, tensors))
        if found[1][0] == "CaptureError":
            refused |= {entry.name} if found[0][0] == "no error" else set()  # otherwise the arguments were wrong
        elif not equal(*found):
            unequal.append((entry.text, found))
    assert not unequal
    assert len(listed) > 300
    assert refused <= WAITING
