"""State that functions, their cells and their globals hold, and names that Python looks up by itself. See `state`."""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import builtins
import types
from typing import Any

from .state import class_with, new_module, setter, source


@source
def a_cell() -> Any:
    found = types.CellType(1.0)
    return lambda: found.cell_contents, setter(found, "cell_contents")


@source
def a_name_of_builtins_that_a_module_gets() -> Any:
    module = new_module()
    exec("def read():\n    return float(len('a'))", vars(module))  # noqa: S102
    return lambda: module.read(), lambda new: setattr(module, "len", lambda _: new)


@source
def a_name_that_builtins_get() -> Any:
    builtins.made_rate = 1.0  # type: ignore[attr-defined]
    return lambda: made_rate, setter(builtins, "made_rate")  # type: ignore[name-defined] # noqa: F821


@source
def the_text_of_a_class() -> Any:
    kind = class_with(__doc__="1.0")
    return lambda: float(kind.__doc__), lambda new: setattr(kind, "__doc__", str(new))


@source
def a_property_of_a_metaclass() -> Any:
    state = {"rate": 1.0}

    class Meta(type):
        @property
        def rate(cls) -> Any:
            return state["rate"]

    kind = Meta("Made", (), {"__module__": __name__})
    return lambda: kind.rate, lambda new: state.update(rate=new)
