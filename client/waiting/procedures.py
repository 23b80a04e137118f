"""Procedures about several sessions: steps of their procedures, one after the other, or concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from ...interpreter.errors import TensordError
from ..outbox.outbox import Outbox
from .steps import Elsewhere, Steps, Wait

T = TypeVar("T")


def of(outbox: Outbox, steps: Steps[T], wait: Wait | None = None) -> Steps[T]:
    """The procedure of one session, as a part of a procedure about several. `wait`: its wait, if it has begun."""
    move: Callable[[], Wait] = partial(next, steps)
    while True:
        if wait is None:
            try:
                with outbox.lock:
                    wait = move()
            except StopIteration as end:
                result: T = end.value
                return result
        try:
            move = partial(steps.send, (yield Elsewhere(outbox, wait)))
        except BaseException as error:  # the procedure handles any error
            move = partial(steps.throw, error)
        wait = None


def side_by_side(procedures: Iterable[tuple[Outbox, Steps[T]]]) -> Steps[list[T | TensordError]]:
    """The results, or errors, of procedures that all ask before the first one waits."""
    given = list(procedures)
    begun = [begin(outbox, steps) for outbox, steps in given]
    results: list[T | TensordError] = []
    try:
        for running in begun:
            try:
                results.append((yield from running))
            except TensordError as error:
                results.append(error)
    finally:
        for _, steps in given[len(results) :]:
            steps.close()
    return results


def begin(outbox: Outbox, steps: Steps[T]) -> Steps[T | TensordError]:
    """The rest of a procedure whose first step is taken now."""
    try:
        with outbox.lock:
            wait = next(steps)
    except StopIteration as end:
        return over(end.value)
    except TensordError as error:
        return over(error)
    return of(outbox, steps, wait)


def over(result: T) -> Steps[T]:
    """A procedure that has ended."""
    yield from ()
    return result
