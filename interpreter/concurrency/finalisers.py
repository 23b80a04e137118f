"""Finalisers without a line of Python: Python ignores what is raised in one, so an exception from outside would be lost
there, and what the finaliser was to do with it.

A class has `__del__ = FINALISER`, and its objects a slot or an attribute `_drop`: a function of C without parameters,
such as `partial(queue.put, number)`, or `NOTHING`. An object whose `__init__` has not come as far has no `_drop`, and
nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

FINALISER: Final[Any] = property(attrgetter("_drop"))
NOTHING: Final[Callable[[], object]] = bool
