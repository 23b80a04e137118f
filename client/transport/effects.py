"""The side effects of a session on a daemon: the user's callbacks, called in order when their values have arrived.

The thread that reads the socket notes answers, inside the transport's lock. `run` calls the callbacks outside of that
lock, on one thread at a time; a callback's error stops the chain of its effect.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CancelledError, KernelError, TensordError, text_of, without_frames
from .outgoing import SideEffect


class EffectAnswer(NamedTuple):
    """The values of a side effect that was sent, or its error. `again`: further answers may follow."""

    request: int
    values: Any
    error: TensordError | None
    again: bool


class SideEffectRunner:
    """Runs side effects. `sent`: the unfinished ones, by request; `settle` ends the check of a chain, with its
    error."""

    def __init__(self, sent: dict[int, SideEffect], settle: Callable[[int, TensordError | None], None]) -> None:
        self.answers: deque[EffectAnswer] = deque()
        self._sent = sent
        self._settle = settle
        self._broken: dict[int, TensordError] = {}  # chains that a callback's error has stopped
        self._cancelled = 0  # side effects with lower numbers were cancelled
        self._lock = threading.Lock()
        self.thread = 0  # the thread that is inside a callback

    def cancel(self, number: int) -> None:
        """Cancel side effects with lower numbers, even if their values have arrived. May be called anywhere."""
        self._cancelled = number
        self._broken.clear()

    def run(self) -> None:
        """Run the side effects that have arrived, unless another thread does."""
        while self.answers and self._lock.acquire(blocking=False):
            try:
                self.thread = threading.get_ident()
                while self.answers:
                    self._run(self.answers.popleft())
            finally:
                self.thread = 0
                self._lock.release()

    def _run(self, answer: EffectAnswer) -> None:
        effect = self._sent.get(answer.request)
        if effect is None:
            return  # an error has ended it
        if not answer.again or answer.error is not None:
            del self._sent[answer.request]
        error = self._outcome(effect, answer)
        if not answer.again or error is not None:
            self._settle(effect.request, error)

    def _outcome(self, effect: SideEffect, answer: EffectAnswer) -> TensordError | None:
        """Call the callback, unless its chain was stopped or cancelled; returns the error."""
        broken = self._broken.get(effect.chain)
        if broken is not None or answer.error is not None:
            return broken or answer.error
        if answer.request < self._cancelled:
            return CancelledError("the session was cancelled", op="effect", location=effect.location)
        if effect.repeats and not answer.again:
            return None  # it is over
        error = call_back(effect, answer.values)
        if error is not None and answer.request >= self._cancelled:
            self._broken[effect.chain] = error
        return error


def call_back(effect: SideEffect, arrays: Any) -> TensordError | None:
    """Call the user's function with its own arrays; returns its error, which stops the chain."""
    try:
        with SHIELD.calling:
            effect.callback(*[one if isinstance(one, TensordError) else np.array(one) for one in arrays or ()])
    except TensordError as error:
        own = error.reraisable()  # a copy: other operands may have the same error
        own.op, own.location = error.op or "effect", error.location or effect.location
        return without_frames(own)
    except BaseException as error:  # also KeyboardInterrupt: the callback itself has raised it
        failure = KernelError(
            f"effect: {type(error).__name__}: {text_of(error)}", op="effect", location=effect.location
        )
        failure.__cause__ = without_frames(error)
        return failure
    return None
