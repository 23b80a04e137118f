"""The docstrings of public callables describe each parameter, and name no parameter that does not exist.

A docstring that refers to another one, as in "see `Session.publish`", may leave out the parameters that are documented
there.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensord as td
from tensord.interpreter.own_ops.definition import Stated

PARAMETER = re.compile(r"^ *:param (\w+):", re.MULTILINE)
REFERENCE = re.compile(r"[Ss]ee `(?:(\w+)\.)?(\w+)`")
FUNCTIONS = {name: value for name in td.__all__ if inspect.isfunction(value := getattr(td, name))}
CLASSES = {
    name: value
    for name in td.__all__
    if inspect.isclass(value := getattr(td, name)) and not issubclass(value, BaseException)
}
STATED = "stated"  # of `op`: keyword arguments, which its overloads name
MADE = ("connect_async", "connect_cluster_async")  # they take what `connect` and `connect_cluster` take


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield from ((name, function) for name, function in FUNCTIONS.items() if name not in MADE)
    for kind, owner in CLASSES.items():
        for name in dir(owner):
            member = inspect.getattr_static(owner, name)
            function = getattr(member, "__func__", member)
            if not name.startswith("_") and inspect.isfunction(function):
                yield f"{kind}.{name}", function


def parameters(function: Callable[..., Any]) -> set[str]:
    return {name for name in inspect.signature(function).parameters if name not in {"self", "cls"}}


def documented(owner: str, function: Callable[..., Any]) -> set[str]:
    """The parameters in its docstring, and in the docstrings to which that refers."""
    text = inspect.getdoc(function) or ""
    found = set(PARAMETER.findall(text))
    for kind, name in REFERENCE.findall(text):
        other = getattr(CLASSES.get(kind or owner), name, None)
        if callable(other) and other is not function:
            found |= documented(kind or owner, other) & parameters(function)
    return found


def test_every_parameter_of_a_public_callable_is_documented() -> None:
    missing = {
        name: lacks
        for name, function in callables()
        if (lacks := parameters(function) - documented(name.partition(".")[0], function) - {STATED})
    }
    assert missing == {}


def test_every_documented_parameter_exists() -> None:
    extra = {
        name: more
        for name, function in callables()
        if (more := set(PARAMETER.findall(inspect.getdoc(function) or "")) - parameters(function)) and name != "op"
    }
    assert extra == {}


def test_the_keyword_arguments_of_op_are_the_documented_ones() -> None:
    stated = set(inspect.signature(Stated).parameters)
    assert set(PARAMETER.findall(td.op.__doc__ or "")) == stated | {"function"}


def test_every_docstring_begins_with_a_line_of_its_own() -> None:
    lines = {name: (inspect.getdoc(function) or "").split("\n") for name, function in callables()}
    assert [name for name, (first, *rest) in lines.items() if not first or any(rest[:1])] == []
