"""Every public entry of the client, as a call: the entry and its arguments, as Python text.

The names in the texts are those of `names_for`. Functions of the namespaces are found by inspection, so a new one needs
an entry only if it cannot be called with tensors of floats, or issues nothing.
"""

from __future__ import annotations

import functools
import inspect
import operator
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

import tensord as td
from tensord.client.session.handlers import Invocation
from tensord.client.session.session import Session
from tensord.client.tensor.hints import Absent
from tensord.client.tensor.operators import BINARY, COMPARISONS, UNARY
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.errors import TensordError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.wire.fields import Role
from tensord.interpreter.wire.forms import FIELDS
from tensord.interpreter.wire.locations import line_of
from tensord.interpreter.wire.message_kinds import LOCATION
from tensord.interpreter.wire.roles import number_of


class Watch:
    """Collects the locations of the messages and the errors of each entry."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.texts = {0: ""}
        self.current: list[str] = []
        self.found: dict[str, list[str]] = {}
        transport = session._core.transport
        send = transport.send
        transport.send = lambda batch: send(self.noted(batch))

    def noted(self, batch: Any) -> Any:
        """The batch whose locations are noted."""
        for message in batch:
            if message[0] == LOCATION:
                self.texts[message[1]] = message[2]
            elif any(field.role is Role.LOCATION for field in FIELDS[message[0]].values()):
                self.current.append(self.texts[line_of(number_of(message, Role.LOCATION))])
        return batch

    def begin(self, name: str) -> None:
        """The following messages belong to that entry."""
        self.session.flush()
        self.current = self.found[name] = []

    def fail(self, error: TensordError) -> None:
        """The entry has raised an error."""
        self.current.append(error.location or "")


def program(listed: list[Entry], indent: str) -> tuple[str, dict[str, int]]:
    """A program that makes each call, and the line of each."""
    lines = ["from tensord import TensordError"] if not indent else []
    where = {}
    for entry in listed:
        lines += [f"watch.begin({entry.name!r})", "try:", f"    {entry.text}"]
        where[entry.name] = len(lines)
        lines += ["except TensordError as error: watch.fail(error)", "except (TypeError, ValueError): pass"]
    lines += ["watch.begin('the end')", ""]
    return "\n".join(indent + line for line in lines), where


class Entry(NamedTuple):
    """One call. `issues`: it sends a message that has a location, or raises an error that has one."""

    name: str
    function: str
    arguments: str
    issues: bool = True

    @property
    def text(self) -> str:
        """The call as a line of a program."""
        return f"{self.function}({self.arguments})"


def names_for(session: Session) -> dict[str, Any]:
    """The names that the texts use."""
    x = session.asarray(np.eye(3) + 1.0)
    one = session.asarray(2)
    add = Invocation(session, find("add"), (x, 1.0), (), None, None)
    known: dict[str, Any] = {"s": session, "x": x, "z": x.copy(), "i": session.asarray(np.eye(3, dtype=np.int64))}
    known |= {"b": session.asarray(np.eye(3) > 0), "one": one, "v": session.asarray(np.arange(3)), "add": add}
    known |= {"np": np, "td": td, "operator": operator, "partial": functools.partial, "attrgetter": operator.attrgetter}
    return known | {
        "xp": session.xp,
        "nn": session.nn,
        "random": session.random,
        "nothing": nothing,
        "TensordError": TensordError,
    }


def nothing(*_: object) -> None:
    """A callback."""


SESSION = {
    "asarray": "[1.0]",
    "global_tensor": "[1.0], td.placement(['cpu:0'])",
    "fetch": "[x, one]",
    "sync": "",
    "load": "'there is no such file'",
    "checkpoint": "'/there/is/no/such/folder', keep=-1",
    "restore": "'/there/is/no/such/folder'",
    "save": "'/there/is/no/such/folder', {'x': x}",
    "effect": "nothing, x",
    "host_call": "nothing, x, result=x",
    "record": "'a file', without=7",
    "check_chain": "",
    "print": "x",
    "call": "'add', [x, 1.0]",
    "execute": "add",
    "link": "7",
    "cond": "one, operator.neg, operator.pos, x",
    "case": "one, [operator.neg, operator.pos], x",
    "while_loop": "partial(operator.lt, 5), operator.neg, one, max_iterations=3",
    "repeat": "2, operator.neg, x",
}
SESSION_QUIET = {  # they say nothing about lines
    "flush": "",
    "chain": "",
    "publish": "'a name', x",
    "lookup": "'a name'",
    "unpublish": "'a name'",
    "names": "",
    "atomic": "",
    "routine": "nothing",
    "explain": "operator.neg, 7",
    "context": "",
    "empty_host": "3",
    "pool": "3",
    "host_results": "",
    "span": "'a span'",
    "supports": "add.op, 'cpu:0'",
    "place": "add",
    "stats": "",
    "trace": "",
    "cancel": "",
    "restart": "",
}
SESSION_PROPERTIES = ("xp", "nn", "random", "devices", "handler", "closed", "address", "placement")
TENSOR = {
    "numpy": "",
    "cupy": "",
    "wait": "",
    "is_ready": "",
    "tolist": "",
    "to_device": "'cpu:0'",
    "to_global": "td.placement(['cpu:0'])",
    "copy": "",
    "pin": "",
    "unpin": "",
    "evict": "",
    "prefetch": "'cpu:0'",
    "reshape": "9",
    "permute_dims": "(1, 0)",
    "squeeze": "",
    "astype": "'float32'",
}
REDUCTIONS = ("sum", "prod", "mean", "var", "std", "max", "min", "argmax", "argmin", "all", "any")
TENSOR_QUIET = {"residency": "", "release": ""}
TENSOR_PROPERTIES = ("shape", "dtype", "ndim", "size", "nbytes", "device")
OPERATED = {
    "__getitem__": ("operator.getitem", "x, 0"),
    "__getitem__ by tensor": ("operator.getitem", "x, v"),
    "__setitem__": ("operator.setitem", "z, 0, 1.0"),
    "__contains__": ("operator.contains", "x, 2.0"),
    "__iter__": ("list", "x"),
    "__bool__": ("bool", "one"),
    "__int__": ("int", "one"),
    "__float__": ("float", "one"),
    "__complex__": ("complex", "one"),
    "__index__": ("operator.index", "one"),
    "__format__": ("format", "one, 'd'"),
    "__copy__": ("x.__copy__", ""),
    "__deepcopy__": ("x.__deepcopy__", "{}"),
    "__dlpack__": ("np.from_dlpack", "x"),
    "__array_ufunc__": ("operator.mul", "np.float64(2.0), x"),
    "item": ("one.item", ""),
    "error": ("attrgetter('error')", "x"),
    "T": ("attrgetter('T')", "x"),
    "mT": ("attrgetter('mT')", "x"),
}
ELSEWHERE = {  # tested in other places, or without a location
    *(
        "__init__",
        "__del__",
        "__aenter__",
        "__aexit__",
        "__await__",
        "__reduce__",
        "__hash__",
        "__repr__",
        "__str__",
        "__dir__",
        "__len__",
        "__array__",
        "__enter__",
    ),
    *("__exit__", "__array_namespace__", "__dlpack_device__", "__array_function__", "close", "__init_subclass__"),
    *("__doc__", "__module__", "__slots__", "__annotations__", "__weakref__", "__dict__", "__firstlineno__"),
    *("__static_attributes__",),
}
INTEGERS = ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]
ARGUMENTS = {
    **{f"xp.{name}": "i, i" for name in INTEGERS},
    **{f"xp.logical_{name}": "b, b" for name in ("and", "or", "xor")},
    "xp.bitwise_invert": "i",
    "xp.logical_not": "b",
    "xp.where": "b, x, x",
    "xp.take": "x, v",
    "xp.reshape": "x, (9,)",
    "xp.concat": "[x, x]",
    "xp.stack": "[x, x]",
    "xp.meshgrid": "v, v",
    "xp.full": "3, 1.0",
    "xp.full_like": "x, 1.0",
    "xp.zeros": "3",
    "xp.ones": "3",
    "xp.empty": "3",
    "xp.eye": "3",
    "xp.arange": "3",
    "xp.linspace": "0, 1, 3",
    "xp.asarray": "[1.0]",
    "xp.from_dlpack": "np.ones(3)",
    "nn.dropout": "x, 7, rate=0.5",
    "nn.dropout_grad": "x, 7, rate=0.5",
    "random.uniform": "3",
    "random.normal": "3",
    "random.integers": "0, 9, 3",
    "random.bernoulli": "0.5, 3",
    "random.permutation": "3",
}
QUIET = {  # they read dtypes, or describe the session
    *("xp.broadcast_arrays", "xp.can_cast", "xp.finfo", "xp.iinfo", "xp.isdtype", "xp.result_type"),
    *("random.seed", "xp.linalg.tensordot", "xp.broadcast_shapes"),
}


def operators() -> list[Entry]:
    """The operators that are made from tables."""
    found = [Entry(f"__{name}__", f"operator.{name}", "i" if name == "invert" else "x") for name in UNARY]
    for name in BINARY:
        mine = "i" if name in {"and", "or", "xor", "lshift", "rshift"} else "x"
        function = f"operator.{name}_" if name in {"and", "or"} else f"operator.{name}"
        found += [Entry(f"__{name}__", function, f"{mine}, {mine}")]
        found += [Entry(f"__i{name}__", f"operator.i{name}", f"{'i' if mine == 'i' else 'z'}, {mine}")]
        found += [
            Entry(f"__r{name}__", f"x.__r{name}__", "2.0") if mine == "x" else Entry(f"__r{name}__", function, "2, i")
        ]
    return [*found, *(Entry(f"__{name}__", f"operator.{name}", "x, x") for name in COMPARISONS)]


def functions(namespace: Any, prefix: str) -> list[Entry]:
    """The functions of a namespace."""
    names = [name for name in dir(namespace) if not name.startswith("_") and name not in {"linalg", "fft"}]
    return [
        Entry(
            f"{prefix}.{name}",
            f"{prefix}.{name}",
            arguments(f"{prefix}.{name}", function),
            f"{prefix}.{name}" not in QUIET,
        )
        for name in names
        if isinstance(function := getattr(namespace, name), MethodType | functools.partial)
    ]


def arguments(name: str, function: Any) -> str:
    """The arguments in the table, or a tensor of floats for each required argument."""
    needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    given = (one for one in needed if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD})
    return ARGUMENTS.get(name) or ", ".join("x" for _ in given) or "x"


def entries(session: Session) -> list[Entry]:
    """All of them. Entries that end something come last."""
    found = [Entry(name, f"s.{name}", given) for name, given in SESSION.items()]
    found += [Entry(name, f"x.{name}", given) for name, given in TENSOR.items()]
    found += [Entry(name, f"x.{name}", "") for name in REDUCTIONS]
    found += [Entry(name, function, given) for name, (function, given) in OPERATED.items()]
    found += operators()
    found += (
        functions(session.xp, "xp") + functions(session.xp.linalg, "xp.linalg") + functions(session.xp.fft, "xp.fft")
    )
    found += functions(session.nn, "nn") + functions(session.random, "random")
    found += [Entry(name, f"attrgetter('{name}')", "s", issues=False) for name in SESSION_PROPERTIES]
    found += [Entry(name, f"attrgetter('{name}')", "x", issues=False) for name in TENSOR_PROPERTIES]
    found += [Entry(name, f"s.{name}", given, issues=False) for name, given in SESSION_QUIET.items()]
    return found + [Entry(name, f"x.{name}", given, issues=False) for name, given in TENSOR_QUIET.items()]


def missing(found: list[Entry]) -> set[str]:
    """Public names of sessions and tensors without an entry. Awaitable forms are in `waiting/forms`."""
    there = {
        name
        for kind in (*Session.__mro__[:-1], *Tensor.__mro__[:-1])
        for name, value in vars(kind).items()
        if (name.startswith("__") or not name.startswith("_")) and not isinstance(value, Absent)
        if not name.endswith("_async")
    }
    return there - ELSEWHERE - {entry.name for entry in found}
