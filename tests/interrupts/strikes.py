"""Striking a program: an exception from outside at one of the points where Python may raise it.

The interpreter looks for signals and thrown exceptions at the start of a function, at jumps backwards, and behind
calls. `Striker` traces the package's frames in this thread, counts these points (*checkpoints*), and at one of them
acts as the interpreter does: it calls the handler that is installed for a signal, or throws an exception.
"""

from __future__ import annotations

import ctypes
import dis
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from signal import getsignal
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple

import tensord

PACKAGE = str(Path(tensord.__file__).parent)
CALLS = ("CALL", "CALL_FUNCTION_EX", "CALL_KW")


class Checkpoint(NamedTuple):
    """A checkpoint of a program: code, offset, and how often the program was there before."""

    code: CodeType
    offset: int
    before: int

    def __str__(self) -> str:
        lines = {offset: line for start, end, line in self.code.co_lines() for offset in range(start, end, 2)}
        path = Path(self.code.co_filename).relative_to(PACKAGE)
        again = f", passed {self.before} times before" if self.before else ""
        return f"{path}:{lines.get(self.offset)} in {self.code.co_qualname}, offset {self.offset}{again}"


@cache
def checkpoints(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions in front of which the interpreter has just looked."""
    found = set[int]()
    instructions = list(dis.get_instructions(code))
    for one, behind in pairwise(instructions):
        if one.opname == "RESUME" or one.opname in CALLS:
            found.add(behind.offset)
        elif one.opname.startswith("JUMP_BACKWARD") and "NO_INTERRUPT" not in one.opname:
            found.add(int(one.argval))
    return frozenset(found)


class Struck(BaseException):
    """The exception of the tests' handlers: no Exception, so that no code takes it for an error."""


def raise_struck(*_: object) -> None:
    """The handler of a signal that raises."""
    raise Struck


class Striker:
    """Counts the checkpoints of the package that this thread passes, and calls `strike` at one of them."""

    def __init__(self, target: Checkpoint | None, strike: Callable[[FrameType], None]) -> None:
        self.target = target
        self.strike = strike
        self.passed: dict[tuple[CodeType, int], int] = {}
        self.struck = False

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace this thread. Callbacks of the collector, such as hypothesis', are left out: a strike could hit them."""
        callbacks = list(gc.callbacks)
        gc.callbacks.clear()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            gc.callbacks[:] = callbacks

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._look
        return None

    def _look(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode" and not self.struck:
            code, offset = frame.f_code, frame.f_lasti
            if offset in checkpoints(code):
                times = self.passed.get((code, offset), 0)
                self.passed[code, offset] = times + 1
                if (code, offset, times) == self.target:
                    self.struck = True
                    sys.settrace(None)  # other code takes its usual time
                    self.strike(frame)
        return self._look


def by_signal(number: int) -> Callable[[FrameType], None]:
    """A strike: as the interpreter acts on a signal that has arrived."""

    def strike(frame: FrameType) -> None:
        handler = getsignal(number)
        assert callable(handler)
        handler(number, frame)

    return strike


def by_two_signals(_frame: FrameType) -> None:
    """A strike: two signals at once. If the handler of the first one raises, that of the second one is called a step
    later, on the way out."""
    both = (signal.SIGINT, signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    try:
        for number in both:
            signal.raise_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)


def by_throw(_frame: FrameType) -> None:
    """A strike: an exception thrown by a debugger."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(get_ident()), ctypes.py_object(Struck))
