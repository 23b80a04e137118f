"""Finalisers without a line of Python: Python ignores what is raised in one, so an exception from outside would be lost
there, and what the finaliser was to do with it.

A `Last` is a weak reference that puts itself where it is found later when its object is gone.

A class has `__del__ = FINALISER`, and its objects a slot or an attribute `_drop`: a function of C without parameters,
such as `partial(queue.put, number)`, or `NOTHING`. An object whose `__init__` has not come as far has no `_drop`, and
nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final
from weakref import ref

FINALISER: Final[Any] = property(attrgetter("_drop"))
NOTHING: Final[Callable[[], object]] = bool


class Last(ref[Any]):
    """A weak reference whose callback is a function of C that keeps it, such as `queue.put`. `what`: what is to be done
    when it is found there. Alive as long as `kept` has it."""

    __slots__ = ("what",)
    what: Any

    @classmethod
    def of(cls, thing: Any, gone: Callable[[Any], object], what: Any, kept: dict[int, Last]) -> None:
        """Have `gone` called with such a reference when the thing is gone."""
        last = cls(thing, gone)
        last.what = what
        kept[id(last)] = last
