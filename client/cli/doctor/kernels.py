"""The check of `tensord doctor` on the directory in which compiled kernels of CUDA devices are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ....interpreter.errors import TensordError
from ..drawing.figures import plural, size
from .findings import Finding, note, ok, warn

NAME: Final = "kernel cache"


def check_kernels(directory: Path | None = None) -> Iterator[Finding]:
    """Where it is, how many kernels it has, how large it is; by default the one of a daemon without configuration."""
    from ....streams import kernel_cache

    try:
        directory = kernel_cache.directory_of() if directory is None else directory
        kernel_cache.check(directory)
    except TensordError as error:
        what, _, advice = error.message.partition(": ")
        yield warn(NAME, what, advice)
        return
    found = kernel_cache.kept_in(directory)
    if found.kernels:
        yield ok(NAME, f"{directory}: {plural(found.kernels, 'kernel')}, {size(found.nbytes)}")
    else:
        yield note(NAME, f"{directory} has no kernel yet", "tensord warm compiles kernels before they are needed")
