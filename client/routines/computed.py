"""Finds the places where code accesses attributes and modules by computed names, from its instructions.

`getattr(net, "rate")` names an attribute as `net.rate` does. `getattr(net, name)` may read any attribute of any object
`net`; so may `vars(net)`, a format that is no literal, and `getattr` itself if it is passed on as a value. Code with
only constant names is fully known; other code *asks*. If the object is a variable, or an attribute of one (its *path*),
`watch` looks it up when the call is made, and all attributes of that object count. Otherwise the object is unknown, and
all attributes count of every object that the capture has reached.

An argument is a constant name if exactly one instruction makes it, which loads a text. Arguments are distinguished by
the depth of the stack: it is empty when the function has just been loaded, and argument n begins where the depth last
grows from n to n + 1. If a jump leads into the arguments or out of them, nothing is known, and the code asks.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator, Sequence
from dis import Instruction
from typing import Final, NamedTuple

_LOADS: Final = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_NAMES: Final = ("LOAD_GLOBAL", "LOAD_NAME")
_VARIABLES: Final = (
    "LOAD_FAST",
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_DEREF",
    "LOAD_CLOSURE",
)
_PUSHES: Final = (*_VARIABLES, "LOAD_CONST", "LOAD_SMALL_INT", "PUSH_NULL", "BUILD_")  # empty ones, of the last
_NULL_BEHIND: Final = sys.version_info >= (3, 13)  # Python used to push it before a function
_NOTHING: Final = ("CACHE", "NOP", "EXTENDED_ARG", "RESUME", "PRECALL")  # PRECALL: of Python 3.11
_JUMPS: Final = frozenset((*dis.hasjrel, *dis.hasjabs))
# Functions that ask for attributes by the texts among their arguments: by the first, the second, or all of them.
FIRST, SECOND, LAST, ALL = (0,), (1,), (-1,), None
ASKERS: Final = {
    "getattr": SECOND,
    "hasattr": SECOND,
    "attrgetter": ALL,
    "methodcaller": FIRST,
    "__getattribute__": LAST,
}
# Names in code that reads all attributes, or attributes that others name.
WHOLE: Final = frozenset(("__dict__", "__reduce_ex__", "__reduce__", "__getstate__", "__match_args__"))
SELF_ASKING: Final = WHOLE | {"__getattribute__"}  # also as texts: `getattr(net, "__dict__")`
LISTED: Final = frozenset(("vars", "dir"))  # as names, but not as attributes: `options.dir`
PATHS: Final = frozenset(("getattr", "hasattr", "vars"))  # their object is the first argument
FORMATS: Final = frozenset(("format", "format_map"))
MODULES: Final = frozenset(("modules", "__import__"))
# Names that lead to names and values of functions and frames, which no guard can look up.
FRAME_NAMES: Final = frozenset(
    ("__globals__", "f_globals", "f_locals", "f_builtins", "gi_frame", "cr_frame", "ag_frame", "tb_frame")
)


class ComputedAccess(NamedTuple):
    """An access by a computed name. `path`: the variable and attributes that hold the object, if known."""

    path: tuple[str, ...]
    offset: int


class BytecodeCall(NamedTuple):
    """A call of a function that was just loaded: the instructions for each argument, and the call's position."""

    arguments: list[list[Instruction]]
    offset: int


def read_apart(code: Iterable[Instruction]) -> Iterator[Instruction]:
    """The instructions, with those that load two variables split in two."""
    for instruction in code:
        if (
            instruction.opname.startswith("LOAD_")
            and isinstance(instruction.argval, tuple)
            and instruction.opname.count("LOAD_FAST") == 2
        ):
            for name in instruction.argval:
                yield instruction._replace(opname="LOAD_FAST", opcode=dis.opmap["LOAD_FAST"], arg=0, argval=name)
        else:
            yield instruction


def computed_accesses(code: Sequence[Instruction]) -> Iterator[ComputedAccess]:
    """The accesses to attributes that the code does not name."""
    for n, instruction in enumerate(code):
        if instruction.opname in _LOADS and is_asking(code, n, str(instruction.argval)):
            call = call_of(code, n) if instruction.argval in ASKERS or instruction.argval in PATHS else None
            known = call is not None and instruction.argval in PATHS and instruction.opname in _NAMES
            yield ComputedAccess(path_of(call) if call and known else (), call.offset if call else instruction.offset)


def path_of(call: BytecodeCall) -> tuple[str, ...]:
    """The path to a call's first argument; () unless the path is constant and the rest of the call leaves it alone."""
    first, *rest = call.arguments or [[]]
    known = (
        bool(first) and first[0].opname.startswith(_VARIABLES) and all(each.opname == "LOAD_ATTR" for each in first[1:])
    )
    others = (each.opname for some in rest for each in some)
    if not known or any(name.startswith(("STORE_", "CALL")) for name in others):
        return ()
    return tuple(str(each.argval) for each in first)


def is_asking(code: Sequence[Instruction], n: int, name: str) -> bool:
    """Return whether the instruction, which loads that name, asks for attributes that the code does not name."""
    if name in ASKERS:
        return not has_constants(code, n, ASKERS[name])
    if name in FORMATS:
        literal = n > 0 and is_text(code[n - 1]) and not code[n].is_jump_target  # then the text is known
        return code[n].opname not in _NAMES and not literal
    return name in WHOLE or (name in LISTED and code[n].opname in _NAMES)


def module_accesses(code: Sequence[Instruction]) -> Iterator[Instruction]:
    """The instructions that ask for modules which the code does not name."""
    for n, instruction in enumerate(code):
        if instruction.opname not in _LOADS or instruction.argval not in MODULES:
            continue
        known = has_constants(code, n, FIRST) if instruction.argval == "__import__" else is_item_by_name(code, n)
        if not known:
            yield instruction


def is_text(instruction: Instruction) -> bool:
    return instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, str)


def is_item_by_name(code: Sequence[Instruction], n: int) -> bool:
    """Return whether it is `sys.modules["name"]`, `"name" in sys.modules`, or `sys.modules.get("name")`."""
    behind = [each for each in code[n + 1 : n + 8] if each.opname not in _NOTHING]
    if behind and behind[0].opname == "CONTAINS_OP":
        first = n - 1 if code[n].opname in _NAMES else n - 2
        return first >= 0 and is_text(code[first])
    if behind and behind[0].opname in ("LOAD_METHOD", "LOAD_ATTR") and behind[0].argval == "get":
        return len(behind) > 1 and is_text(behind[1]) and behind[2].opname in ("CALL", *_PUSHES)
    return len(behind) > 1 and is_text(behind[0]) and behind[1].opname in ("BINARY_SUBSCR", "BINARY_OP")


def has_constants(code: Sequence[Instruction], n: int, wanted: tuple[int, ...] | None) -> bool:
    """Return whether the loaded function is called at once, with constant texts for the wanted arguments."""
    call = call_of(code, n)
    if call is None or not call.arguments:
        return False
    positions = range(len(call.arguments)) if wanted is None else wanted
    return all(-1 <= n < len(call.arguments) and is_constant(call.arguments[n]) for n in positions)


def is_constant(argument: Sequence[Instruction]) -> bool:
    return len(argument) == 1 and is_text(argument[0])


def call_of(code: Sequence[Instruction], n: int) -> BytecodeCall | None:
    """The call of the function that instruction `n` loads; None if it is unknown."""
    arguments: list[list[Instruction]] = []
    depth = 0
    for position in range(n + 1, len(code)):
        instruction = code[position]
        if instruction.opname in _NOTHING or (_NULL_BEHIND and position == n + 1 and instruction.opname == "PUSH_NULL"):
            continue
        if instruction.opcode in _JUMPS or instruction.is_jump_target:
            return None
        if instruction.opname == "CALL" and instruction.arg == depth:
            # Each argument has to begin with a load, instead of a computation from the argument before it.
            pushed = all(some and some[0].opname.startswith(_PUSHES) for some in arguments)
            return BytecodeCall(arguments, instruction.offset) if len(arguments) == depth and pushed else None
        depth = depth_after(depth, instruction, arguments)
        if depth < 1:
            return None
    return None


def depth_after(depth: int, instruction: Instruction, arguments: list[list[Instruction]]) -> int:
    """The depth of the stack after an instruction, which is added to its argument in `arguments`."""
    if instruction.opname == "CALL":  # PRECALL counts with it
        effect = -1 - (instruction.arg or 0)
    else:
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
    before, depth = depth, depth + effect
    if depth > before == len(arguments):  # it begins the next argument
        arguments.append([])
    elif depth < len(arguments):  # several apparent arguments are one
        arguments[depth - 1 :] = [[each for some in arguments[depth - 1 :] for each in some]]
    if arguments:
        arguments[-1].append(instruction)
    return depth
