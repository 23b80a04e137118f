"""The op that a user's function defines.

Nothing is known about a user's kernels: they never run on the thread that drives a machine, unless the user states that
their time is bounded.

The digest is that of the name, the version, the signature, and the source of the user's functions. The functions that
they call, and the constants of their module, are no part of the digest: a package that changes them needs a new
version.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import PackageNotFoundError, version
from textwrap import dedent
from typing import Any, Final, NamedTuple

from ..layouts.rules import Rule
from ..ops.rules.stacks import pointwise
from ..schema.opdef import REGISTRY, REQUIRED, OpDef, Scratch, Work, register
from ..schema.own_op import MAIN_MODULE, OwnOp
from .inferring import checked_infer, elementwise
from .kernels import kernel_of
from .layouts import NO_LAYOUTS_STATED, rule_of
from .signature import Schema, plain_function, schema_of

NAME_PATTERN: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
MAX_NAME_LENGTH: Final = 100  # characters of a name


class Stated(NamedTuple):
    """The statements of a user about an op, besides the function; `tensord.op` explains the fields."""

    infer: Callable[..., Any] | None = None
    name: str | None = None
    version: str | None = None
    elementwise: bool = False
    dynamic: bool = False
    bounded: bool = False
    total: bool = False
    layouts: Sequence[Any] | None = None
    kinds: Collection[str] | None = None
    work: Work | None = None
    scratch: Scratch | None = None


class Defined(NamedTuple):
    """An op of a user, and the schema of its functions."""

    op: OpDef
    own: OwnOp
    schema: Schema


def define_own(function: Callable[..., Any], stated: Stated) -> Defined:
    """Define and register the op of a function. TypeError or ValueError, which say how to correct the definition.

    A script or notebook may define an op again. Then it is another op, whose name ends with a number.
    """
    plain = plain_function(function)
    module = plain.__module__
    name = name_of(plain, stated.name)
    schema = schema_of(function, name)
    if stated.infer is None and not stated.elementwise:
        raise TypeError(f"{name}: give infer=, a function from metas to metas, or elementwise=True")
    if isinstance(stated.kinds, str):
        raise TypeError(f'{name}: kinds must be a list of kinds of devices, such as ["cuda"]')
    kinds = None if stated.kinds is None else frozenset(stated.kinds)
    found = stated.version if stated.version is not None else version_of(module)
    own = OwnOp(found, module, kinds, sources_of(name, found, function, stated, schema))
    known = REGISTRY.get(name)
    if known is not None and known.own is not None and known.own.is_same(own) and module == MAIN_MODULE:
        return Defined(known, known.own, schema)
    if known is not None and module == MAIN_MODULE:
        name = unused(name)
    return Defined(register(definition_of(name, function, stated, schema, own)), own, schema)


def definition_of(name: str, function: Callable[..., Any], stated: Stated, schema: Schema, own: OwnOp) -> OpDef:
    infer = elementwise if stated.infer is None else checked_infer(stated.infer, schema, dynamic=stated.dynamic)
    rule: Rule | str = pointwise if stated.elementwise else NO_LAYOUTS_STATED
    if stated.layouts is not None:
        rule = rule_of(stated.layouts, len(schema.operands), schema.outputs, name)
    return OpDef(
        name,
        schema.inputs,
        infer,
        summary_of(function),
        least=schema.least,
        operands=schema.operands,
        outputs=schema.outputs,
        attributes=schema.attributes,
        kernel=kernel_of(function, schema),
        elementwise=stated.elementwise and not schema.fills,
        total=stated.total,
        dynamic=stated.dynamic,
        bounded=stated.bounded,
        work=stated.work,
        scratch=stated.scratch,
        layouts=rule,
        own=own,
    )


def add_kernel(defined: Defined, kind: str, function: Callable[..., Any]) -> None:
    """Make the function the kernel for devices of a kind; its parameters are those of the op."""
    if type(kind) is not str:
        raise TypeError(f'{defined.op.name}: kernel takes kinds of devices, as in @{defined.op.name}.kernel("cuda")')
    defined.own.add_kernel(kind, kernel_of(function, fitting(function, defined)), source_of(function))


def fitting(function: Callable[..., Any], defined: Defined) -> Schema:
    """The schema for a kernel: the op's, except that the function may or may not take `out`."""
    given = schema_of(function, defined.op.name)
    wanted = defined.schema
    same = given.inputs == wanted.inputs and [each.name for each in given.attributes] == [
        each.name for each in wanted.attributes
    ]
    if not same:
        raise TypeError(f"{defined.op.name}: a kernel takes the operands and attributes of the op, {wanted.operands}")
    return wanted._replace(fills=given.fills)


def name_of(function: Callable[..., Any], given: str | None) -> str:
    """`package.function`, or the given name. Both contain a dot, which this package's own names do not."""
    package = function.__module__.partition(".")[0]
    name = f"{package}.{function.__name__}" if given is None else given
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or NAME_PATTERN.fullmatch(name) is None:
        raise ValueError(f"an op's name is like package.name, of {MAX_NAME_LENGTH} characters at most, not {name!r}")
    return name


def unused(name: str) -> str:
    """The name with the next number."""
    number = 2
    while f"{name}.v{number}" in REGISTRY:
        number += 1
    return f"{name}.v{number}"


def version_of(module: str) -> str:
    """The version of the package that contains the module; "" if it is unknown."""
    package = module.partition(".")[0]
    try:
        return version(package)
    except (PackageNotFoundError, ValueError):
        return str(getattr(sys.modules.get(package), "__version__", ""))


def summary_of(function: Callable[..., Any]) -> str:
    """The first line of the function's docstring."""
    return next(iter((inspect.getdoc(plain_function(function)) or "").splitlines()), "")


def sources_of(name: str, version_text: str, function: Callable[..., Any], stated: Stated, schema: Schema) -> list[Any]:
    """The input of the digest: texts and numbers."""
    attributes = [[each.name, "" if each.default is REQUIRED else repr(each.default)] for each in schema.attributes]
    shape = [schema.inputs, schema.least, schema.outputs, attributes, stated.elementwise, stated.dynamic]
    return [name, version_text, shape, source_of(stated.infer), source_of(function)]


def source_of(function: Any) -> str:
    """The text of a function; if there is none, as in an interactive Python, its byte code."""
    if function is None:
        return ""
    plain = plain_function(function)
    try:
        return dedent(inspect.getsource(plain))
    except (OSError, TypeError):
        code = getattr(plain, "__code__", None)
        return type(plain).__name__ if code is None else f"{code.co_code.hex()} {code.co_names} {code.co_consts}"
