"""The compiled functions of generated kernels on one device, by the digests of their sources.

CuPy stores the machine code on disk. There are at most `MAX_SOURCES` sources, since CuPy forgets nothing that it has
compiled, and clients may send any number of programs. All requests for a source have the same kernel names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from ..stream import LOG

MAX_SOURCES: Final = 4096
COMPILER_OPTIONS: Final = ("--fmad=false",)
NAMES: Final = ("fused", "fused_packs")  # of the kernels of a block (`block_source`): element by element, and by packs

Functions: TypeAlias = tuple[Any, ...]  # CuPy's, of the kernels of a source


class Sources:
    """Compiled sources. `submit` runs work in the background; `current` makes the device current on a thread.
    `compiled`: by digest; None for a source that does not compile. `_admitted`: the digests of all sources that were
    admitted."""

    def __init__(self, cupy: Any, submit: Callable[[Callable[[], None]], None], current: Callable[[], Any]) -> None:
        self._cupy = cupy
        self._submit, self._current = submit, current
        self._admitted: set[str] = set()
        self.compiled: dict[str, Functions | None] = {}

    def is_pending(self, digest: str) -> bool:
        """Return whether the source is still to be compiled."""
        return digest in self._admitted and digest not in self.compiled

    def compile_in_background(self, digest: str, source: str) -> None:
        """Compile a source in the background, unless there are too many."""
        if self._admits(digest):
            self._submit(partial(self._compile, digest, source, NAMES))

    def compile_now(self, digest: str, source: str, names: Sequence[str] = NAMES) -> Functions | None:
        """The functions of a source. Compiles it now if it is not compiled, even if it is queued in the background.

        None if it does not compile, or if there are too many sources.
        """
        if digest not in self.compiled and (digest in self._admitted or self._admits(digest)):
            self._compile(digest, source, names)
        return self.compiled.get(digest)

    def _admits(self, digest: str) -> bool:
        """Admit a source that is to be compiled; False if it was admitted before, or if there are too many."""
        if digest in self._admitted or len(self._admitted) >= MAX_SOURCES:
            return False
        self._admitted.add(digest)
        return True

    def _compile(self, digest: str, source: str, names: Sequence[str]) -> None:
        try:
            with self._current():
                functions = tuple([self._cupy.RawKernel(source, name, COMPILER_OPTIONS).kernel for name in names])
        except Exception:
            LOG.warning("a generated kernel does not compile; its ops run one by one:\n%s", source, exc_info=True)
            self.compiled[digest] = None
        else:
            self.compiled[digest] = functions
