"""The names that CuPy has, which `names.txt` lists: the fake refuses the others, as CuPy would.

    python tests/streams/fake_cuda/names.py > tests/streams/fake_cuda/names.txt

with CuPy's wheel, which needs no GPU for it. The first line is its version.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

MODULES = (
    "cupy",
    "cupy.linalg",
    "cupy.fft",
    "cupy.fft.config",
    "cupy.random",
    "cupy.cuda",
    "cupy.cuda.runtime",
    "cupyx",
    "cupyx.scipy.special",
)
OF_CUDA = ("Device", "Event", "Memory", "MemoryPointer", "MemoryPool", "PinnedMemory", "Stream")
CLASSES = ("cupy.ndarray", "cupy.add", *(f"cupy.cuda.{name}" for name in OF_CUDA))
LISTED = frozenset((*MODULES, *CLASSES))
FILE = Path(__file__).with_name("names.txt")


def names_of_wheel() -> Iterator[str]:
    """Every public name in the modules and classes that are listed."""
    for path in (*MODULES, *CLASSES):
        found = resolve(path)
        yield from (f"{path}.{name}" for name in dir(found) if not name.startswith("_"))


def resolve(path: str) -> Any:
    """What CuPy has of that name; AttributeError if it has nothing."""
    root, *rest = path.split(".")
    found: Any = importlib.import_module(root)
    for name in rest:
        found = getattr(found, name)
    return found


@cache
def known() -> frozenset[str]:
    """The names in the list."""
    return frozenset(FILE.read_text().split("\n")[1:])


def is_known(path: str) -> bool:
    """Does CuPy have it? The list says so of what is inside the modules and classes in `LISTED`; the rest passes."""
    parent, _, name = path.rpartition(".")
    return name.startswith("_") or parent not in LISTED or path in known()


def main() -> None:
    """Write the list."""
    lines = sorted(set(names_of_wheel()))
    sys.stdout.write("\n".join([f"CuPy {importlib.import_module('cupy').__version__}", *lines, ""]))


if __name__ == "__main__":
    main()
