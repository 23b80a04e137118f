"""State that code reads by names that it computes. See `state`."""

# ruff: noqa: PLW0108, ARG005, UP030, UP032 - the forms that are asked for are as they are
from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import importlib
import inspect
import operator
import pickle  # noqa: TID251 - what the program does
import pkgutil
import string
import sys
from builtins import getattr as asked_for
from collections.abc import Callable
from typing import Any

from .state import SOURCES, Thing, new_module, setter, source

PREFIX = "ra"  # of names that no code has as a whole


def asked(name: str, use: Callable[[Any, Any], Any]) -> None:
    """A source whose attribute is read by a computed name."""

    def one() -> Any:
        thing = Thing(rate=1.0)
        return lambda: use(thing, PREFIX + "te"), setter(thing, "rate")

    one.__name__ = f"asked_by_{name}"
    SOURCES.append(one)


PARTIAL: Any = functools.partial(getattr)
TEXT = "{0.rate}"
FORMAT: Any = "{0.rate}".format


def called_with(function: Any, *arguments: Any) -> Any:
    """The result of a function that is passed."""
    return function(*arguments)


def asked_by_default(thing: Any, name: str, *, get: Any = getattr) -> Any:
    """Reads with a function that is a default."""
    return get(thing, name)


asked("getattr", lambda thing, name: getattr(thing, name))
asked("getattr_with_a_default", lambda thing, name: getattr(thing, name, 7.0))
asked("getattr_of_an_item", lambda thing, name: getattr([thing][0], name))
asked("getattr_of_a_choice", lambda thing, name: getattr(thing if name else None, name))
asked("getattr_of_a_part_of_a_text", lambda thing, name: getattr(thing, "ra" + name[2:]))
asked("getattr_of_a_chosen_text", lambda thing, name: getattr(thing, "rate_" if not name else f"ra{name[2:]}"))
asked("getattr_of_arguments", lambda thing, name: getattr(*[thing, name]))
asked("getattr_in_a_loop", lambda thing, name: sum(getattr(thing, each) for each in [name]))
asked("hasattr", lambda thing, name: 1.0 if hasattr(thing, f"rate_{thing.rate:.0f}"[:4]) and thing.rate > 1 else 3.0)
asked("getattr_by_another_name", lambda thing, name: asked_for(thing, name))
asked("getattr_of_builtins", lambda thing, name: builtins.getattr(thing, name))
asked("getattr_as_a_value", lambda thing, name: called_with(getattr, thing, name))
asked("getattr_as_a_default", asked_by_default)
asked("getattr_in_a_variable", lambda thing, name: (get := getattr)(thing, name) * (get is getattr))
asked("getattr_in_a_list", lambda thing, name: [getattr][0](thing, name))
asked("map", lambda thing, name: sum(map(getattr, [thing], [name])))
asked("reduce", lambda thing, name: functools.reduce(getattr, [name], thing))
asked("partial", lambda thing, name: functools.partial(getattr, thing)(name))
asked("partial_from_outside", lambda thing, name: PARTIAL(thing, name))
asked("attrgetter", lambda thing, name: operator.attrgetter(name)(thing))
asked("attrgetters", lambda thing, name: operator.attrgetter("__class__", name)(thing)[1])
asked("methodcaller", lambda thing, name: operator.methodcaller("__getattribute__", name)(thing))
asked("object", lambda thing, name: object.__getattribute__(thing, name))
asked("its_method", lambda thing, name: thing.__getattribute__(name))
asked("type", lambda thing, name: type(thing).__getattribute__(thing, name))  # type: ignore[call-arg]
asked("format", lambda thing, name: float(("{0." + name + "}").format(thing)))
asked("format_from_outside", lambda thing, name: float(TEXT.format(thing)))
asked("format_bound", lambda thing, name: float(FORMAT(thing)))
asked("format_of_a_text", lambda thing, name: float("{0.rate}".format(thing)))
asked("format_of_a_text_by_its_name", lambda thing, name: float("{by.rate!s:>9}".format(by=thing)))
asked("format_map", lambda thing, name: float(("{by." + name + "}").format_map({"by": thing})))
asked("formatter", lambda thing, name: float(string.Formatter().format("{0." + name + "}", thing)))
asked("str", lambda thing, name: float(str.format("{0." + name + "}", thing)))
asked("vars", lambda thing, name: vars(thing)[name])
asked("dict", lambda thing, name: thing.__dict__[name])
asked("dict_by_getattr", lambda thing, name: getattr(thing, "__dict__")[name])  # noqa: B009
asked("members", lambda thing, name: dict(inspect.getmembers(thing))[name])
asked("getattr_static", lambda thing, name: inspect.getattr_static(thing, name))
asked("eval", lambda thing, name: eval(f"thing.{name}"))  # noqa: S307
asked("exec", lambda thing, name: executed(f"found = thing.{name}", thing=thing)["found"])
asked("pickle", lambda thing, name: vars(pickle.loads(pickle.dumps(thing)))[name])  # noqa: S301
asked("copy", lambda thing, name: copy.copy(thing).rate)
asked("deepcopy", lambda thing, name: copy.deepcopy([thing])[0].rate)
asked("reduce_ex", lambda thing, name: thing.__reduce_ex__(2)[2][name])
asked("getstate", lambda thing, name: thing.__getstate__()[name])


def executed(text: str, **names: Any) -> dict[str, Any]:
    """The names after the text was executed."""
    exec(text, names)  # noqa: S102
    return names


@source
def a_slot_by_a_computed_name() -> Any:
    thing: Any = type("Made", (), {"__slots__": ("rate_1",), "__module__": __name__})()
    setter(thing, "rate_1")(1.0)
    return lambda: getattr(thing, f"{PREFIX}te_1"), setter(thing, "rate_1")


@source
def a_module_by_a_computed_name() -> Any:
    module = sys.modules["made_module_computed"] = new_module(rate=1.0)
    name = PREFIX.replace("ra", "made_module_computed")
    return lambda: sys.modules[name].rate, setter(module, "rate")


@source
def a_module_that_is_imported_by_a_computed_name() -> Any:
    module = sys.modules["made_module_by_import"] = new_module(rate=1.0)
    name = PREFIX.replace("ra", "made_module_by_import")
    return lambda: __import__(name).rate, setter(module, "rate")


@source
def a_module_by_its_relative_name() -> Any:
    package = new_module(__path__=[])
    module = new_module(rate=1.0)
    sys.modules[f"{package.__name__}.inner"] = module
    return lambda: importlib.import_module(".inner", package.__name__).rate, setter(module, "rate")


@source
def an_attribute_that_pkgutil_finds() -> Any:
    module = sys.modules["made_module_resolved"] = new_module(inner=Thing(rate=1.0))
    name = PREFIX.replace("ra", "made_module_resolved:inner.rate")
    return lambda: pkgutil.resolve_name(name), setter(module.inner, "rate")


@source
def a_dataclass_in_a_dataclass_as_a_dict() -> Any:
    inner = dataclasses.make_dataclass("Inner", [("rate_1", float)], namespace={"__module__": __name__})
    outer = dataclasses.make_dataclass("Outer", [("inner_1", inner)], namespace={"__module__": __name__})
    thing = outer(inner(1.0))
    return lambda: sum(dataclasses.asdict(thing)["inner_1"].values()), setter(thing.inner_1, "rate_1")


@source
def attributes_by_a_pattern() -> Any:
    kind: Any = dataclasses.make_dataclass("Made", [("rate_1", float)], namespace={"__module__": __name__})
    thing = kind(1.0)

    def read() -> Any:
        match thing:
            case kind(found):
                return found
        return 0.0

    return read, setter(thing, "rate_1")
