"""The limit of threads that BLAS uses for one call, while a cpu device asks for a limit.

The limit holds for the whole process: also for kernels of sim devices, and for NumPy outside the virtual machine.

Measured on 2 cores (OpenBLAS, float32 matmul; ms for a fixed number of calls, library default against one thread):
two workers at once 157 against 98 at 128 x 128, 213 against 165 at 512, 235 against 223 at 1024; a single worker
65 against 94, 111 against 168, 115 against 233. So a limit helps many small products side by side, and slows one chain
of large ones by up to the number of cores. By default there is no limit. A limit helps far more while other processes
keep the cores busy, since a call waits for its slowest thread: examples/train_digits.py, made of small products, took
11.4 s without a limit and 1.3 s with one thread.
"""

from __future__ import annotations

from typing import Any


def unlimitable() -> str:
    """The reason why BLAS calls cannot be limited here, and the remedy; "" if they can be."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "needs the package threadpoolctl: pip install threadpoolctl"
    import numpy as np  # noqa: F401 - its BLAS has to be loaded to be found

    if not any(pool["user_api"] == "blas" for pool in threadpool_info()):
        return "threadpoolctl knows no BLAS library of NumPy's here"
    return ""


class BlasLimit:
    """The process-wide limit: the smallest that an open device asks for. Works only if `unlimitable` returns ""."""

    def __init__(self) -> None:
        self._asked: list[int] = []
        self._active: Any = None

    def ask(self, threads: int) -> None:
        """Limit BLAS calls to that many threads, until the same number is passed to `drop`."""
        self._asked.append(threads)
        self._apply()

    def drop(self, threads: int) -> None:
        """Undo one `ask`. After the last one BLAS has as many threads as before the first."""
        self._asked.remove(threads)
        self._apply()

    def _apply(self) -> None:
        if self._active is not None:
            self._active.restore_original_limits()
            self._active = None
        if self._asked:
            from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

            self._active = threadpool_limits(min(self._asked), user_api="blas")


BLAS = BlasLimit()
