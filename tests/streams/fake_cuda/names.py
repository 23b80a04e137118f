"""CuPy's names, listed in `names.txt`: names, parameters of functions, loops of ufuncs. The fake refuses all others.

    python tests/streams/fake_cuda/names.py > tests/streams/fake_cuda/names.txt

with CuPy's wheel, which needs no GPU for it; `make cupy` compares the two. The first line is its version. Then a line
for each name: `cupy.take(a, indices, axis=, out=)`, `cupy.exp: ee ff dd FF DD` or `cupy.pi`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

MODULES = (
    "cupy",
    "cupy.linalg",
    "cupy.fft",
    "cupy.fft.config",
    "cupy.cuda",
    "cupy.cuda.nccl",
    "cupy.cuda.runtime",
    "cupyx",
    "cupyx.scipy.special",
)
OF_CUDA = ("Device", "Event", "Memory", "MemoryPointer", "MemoryPool", "PinnedMemory", "Stream")
CLASSES = ("cupy.ndarray", "cupy.add", *(f"cupy.cuda.{name}" for name in OF_CUDA), "cupy.cuda.nccl.NcclCommunicator")
LISTED = frozenset((*MODULES, *CLASSES))
FILE = Path(__file__).with_name("names.txt")
# The first line of a docstring, in which Cython leaves the signature.
DOCUMENTED = re.compile(r"[\w.]+\((?P<parameters>.*)\)( -> .*)?")
WIDER: dict[type, str] = {bool: "?bBhHiIlLqQefdFD", int: "bBhHiIlLqQefdFD", float: "efdFD", complex: "FD"}


class Parameters(NamedTuple):
    """A function's parameters: names of positional ones, the number of required ones, names of the others."""

    positional: tuple[str, ...]
    required: int
    others: frozenset[str]
    any_positional: bool = False
    any_other: bool = False

    def problem(self, count: int, keywords: Iterable[str]) -> str:
        """The reason why a call with `count` positional arguments does not fit; "" if it does."""
        unknown = set(keywords) - self.others - set(self.positional[count:])
        if unknown and not self.any_other:
            return f"unexpected arguments: {', '.join(sorted(unknown))}"
        if count > len(self.positional) and not self.any_positional:
            return f"{count} positional arguments, at most {len(self.positional)} are taken"
        missing = set(self.positional[count : self.required]) - set(keywords)
        return f"missing arguments: {', '.join(sorted(missing))}" if missing else ""


# --- of the wheel


def lines_of_wheel() -> Iterator[str]:
    """A line for every public name in the modules and classes that are listed. Attributes of devices are left out."""
    for path in (*MODULES, *CLASSES):
        found = resolve(path)
        yield from (
            line_of(f"{path}.{name}", found, name) for name in dir(found) if not name.startswith(("_", "cudaDevAttr"))
        )


def line_of(path: str, parent: Any, name: str) -> str:
    """The line of a name in the list."""
    found = getattr(parent, name, None)
    types = getattr(found, "types", None)
    if isinstance(types, list):
        return f"{path}: {' '.join(types)}"
    parameters = parameters_of(found, bound=not isinstance(parent, type)) if callable(found) else None
    return path if parameters is None else f"{path}({', '.join(parameters)})"


def parameters_of(function: Any, *, bound: bool) -> list[str] | None:
    """A function's parameters, `name=` for those with a default; None if unknown. `bound`: without the object's own."""
    try:
        found = [named(parameter) for parameter in inspect.signature(function).parameters.values()]
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        documented = DOCUMENTED.fullmatch((getattr(function, "__doc__", "") or "").partition("\n")[0])
        return None if documented is None else without_types(documented["parameters"])
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        found.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return found[1:] if not bound and found[:1] in (["self"], ["cls"]) else found


def named(parameter: inspect.Parameter) -> str:
    """A parameter of Python's."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    return f"{stars}{parameter.name}{'' if parameter.default is inspect.Parameter.empty else '='}"


def without_types(parameters: str) -> list[str]:
    """Parameters as Cython writes them: `self, size_t size, int kind=0`."""
    found = []
    for one in re.sub(r"\([^()]*\)|\[[^][]*\]", "", parameters).split(","):
        name, default, _ = one.strip().partition("=")
        words = name.partition(":")[0].split()
        if words and words[-1] not in {"self", "cls", "/"}:
            found.append(words[-1] + ("=" if default else ""))
    return found


def resolve(path: str) -> Any:
    """CuPy's object of that name; AttributeError if there is none."""
    root, *rest = path.split(".")
    if path.startswith("cupy.cuda.nccl"):
        stub = importlib.import_module(f"{__package__}.nccl_stub" if __package__ else "nccl_stub")
        stub.load_nccl_or_stub()
        importlib.import_module("cupy.cuda.nccl")
    found: Any = importlib.import_module(root)
    for name in rest:
        found = getattr(found, name)
    return found


# --- of the list


@cache
def listed() -> dict[str, str]:
    """The text of the list for each name."""
    lines = FILE.read_text().splitlines()[1:]
    pairs = [re.match(r"[\w.]+", line) for line in lines]
    return {pair[0]: line[pair.end() :] for pair, line in zip(pairs, lines, strict=True) if pair is not None}


@cache
def known() -> frozenset[str]:
    """The names in the list."""
    return frozenset(listed())


def is_known(path: str) -> bool:
    """Whether CuPy has the name, by the list. Names outside the modules and classes in `LISTED` pass."""
    parent, _, name = path.rpartition(".")
    return name.startswith("_") or parent not in LISTED or path in LISTED or path in known()


@cache
def parameters(path: str) -> Parameters | None:
    """The parameters of a function; None if the list does not say."""
    said = listed().get(path, "")
    if not said.startswith("("):
        return None
    names = said[1:-1].split(", ") if said != "()" else []
    ordinary = list(takewhile(lambda name: not name.startswith("*"), names))
    rest = names[len(ordinary) :]
    return Parameters(
        tuple(name.rstrip("=") for name in ordinary),
        sum(not name.endswith("=") for name in ordinary),
        frozenset(name.rstrip("=") for name in rest if not name.startswith("*")),
        any_positional=any(name.startswith("*") and len(name) > 1 and not name.startswith("**") for name in rest),
        any_other=any(name.startswith("**") for name in rest),
    )


def check_call(path: str, count: int, keywords: Iterable[str]) -> None:
    """TypeError for arguments that the function does not take."""
    found = parameters(path)
    if found is not None and (problem := found.problem(count, keywords)):
        raise TypeError(f"{path}(): {problem}")


@cache
def loops(path: str) -> tuple[str, ...]:
    """The loops of a ufunc, such as "ff->f"; empty for other functions."""
    said = listed().get(path, "")
    return tuple(said[2:].split()) if said.startswith(": ") else ()


def has_loop(path: str, operands: Iterable[Any]) -> bool:
    """Whether a ufunc has a loop for arrays, or dtypes, and Python's scalars; true for other functions."""
    given = [getattr(x, "dtype", x) for x in operands]
    return has_loop_for(path, tuple(type(x) if type(x) in WIDER else x for x in given))


@cache
def has_loop_for(path: str, given: tuple[Any, ...]) -> bool:
    """The same for dtypes, and types of scalars."""
    return not loops(path) or any(
        all(takes(wanted, x) for wanted, x in zip(loop.partition("->")[0], given, strict=False)) for loop in loops(path)
    )


def takes(wanted: str, given: Any) -> bool:
    """Whether a loop's operand may have that dtype, or be a scalar of that type."""
    import numpy as np

    return wanted in WIDER[given] if given in WIDER else bool(np.can_cast(given, np.dtype(wanted), "safe"))


def text_of_wheel() -> str:
    """The list, as the installed wheel has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the script resolves deprecated names, too
        resolve("cupy.cuda.nccl")  # a name of `cupy.cuda` once it is imported
        lines = sorted(set(lines_of_wheel()))
    return "\n".join([f"CuPy {importlib.import_module('cupy').__version__}", *lines, ""])


def main() -> None:
    """Write the list."""
    sys.stdout.write(text_of_wheel())


if __name__ == "__main__":
    main()
