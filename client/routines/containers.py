"""Examines containers, buffers and wrappers of objects, for the search of the state that a function may read."""

from __future__ import annotations

import builtins
import sys
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ..capture.structure import is_named, joined, members
from .contents import MAX_COMPARED_BYTES, Bytes, ContainerContents
from .functions import look_at_modules
from .guard_checks import LOOKUP_ERRORS, MISSING, TEXTS, found_or_missing
from .kinds import is_program_class, parts_of
from .names import texts_in
from .objects import look_at_object
from .search import Search

MAX_GUARDED_ITEMS: Final = 32  # the most items of a dict that get guards of their own
SEQUENCES: Final = (list, tuple, set, frozenset, deque)


def look_at_dict(search: Search, value: Any, name: str) -> None:
    """The keys in order, and the values."""
    if value is sys.modules:  # `look_at_code` handles the named modules
        if search.asked_modules or name.rpartition(".")[2] != "modules":
            look_at_modules(search)
        return
    if value is vars(builtins):
        return  # `look_at_code` handles the named builtins
    kind = next(each for each in (OrderedDict, dict, MappingProxyType) if isinstance(value, each))
    items: Any = kind  # not the methods of a class of its own
    pairs = list(items.items(value))
    if len(pairs) > MAX_GUARDED_ITEMS:
        search.state(ContainerContents(value, lambda: (*items.keys(value), *items.values(value))), name)
        for key, member in pairs:
            search.follow(member, joined(name, key))
    else:
        if type(value) is dict and all(type(key) is str for key, _ in pairs):
            search.shape(tuple, value, name)
        else:
            search.state(ContainerContents(value, partial(items.keys, value)), name)
        get = partial(items.get, value) if type(value) is not dict else value.get  # not __getitem__: it may add
        for key, member in pairs:
            search.note(get, key, member, joined(name, key))
    if type(value) not in (dict, MappingProxyType):
        look_at_object(search, value, name)
    if isinstance(value, defaultdict):
        search.attribute(value, "default_factory", name)


def look_at_sequence(search: Search, value: Any, name: str) -> None:
    """The members in order."""
    kind: Any = next(each for each in SEQUENCES if isinstance(value, each))
    elements = list(kind.__iter__(value))
    if kind not in (tuple, frozenset):  # members of the others cannot be replaced
        is_log = all(type(each) in TEXTS for each in elements)  # to which the function may add lines
        search.state(ContainerContents(value, partial(kind.__iter__, value)), name, renewed=is_log)
    for position, element in enumerate(elements):
        search.follow(element, joined(name, value._fields[position] if is_named(value) else position))
    if type(value) is not kind:
        look_at_object(search, value, name)


def look_at_slice(search: Search, value: slice, name: str) -> None:
    """The start, stop and step, which may be objects."""
    for key, each in members(value) or ():
        search.follow(each, joined(name, key))


def look_at_array(search: Search, value: Any, name: str) -> None:
    """An array, or one of its records: its bytes, or the objects in it."""
    if value.dtype.hasobject:
        listed: Callable[[], Any] = value.item if isinstance(value, np.void) else lambda: value.ravel().tolist()
        search.state(ContainerContents(value, listed), name)
        for position, each in enumerate(listed()):
            search.follow(each, joined(name, position))
    else:
        look_at_buffer(search, value, name)
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray:  # such as a mask
        look_at_object(search, value, name)


def look_at_buffer(search: Search, value: Any, name: str) -> None:
    try:
        size = value.nbytes if isinstance(value, np.ndarray | np.void) else memoryview(value).nbytes
        if size > MAX_COMPARED_BYTES:
            search.refuse(name, f"has more than {MAX_COMPARED_BYTES >> 20} MiB, too many to compare before each run")
        else:
            search.state(Bytes(value), name)
    except LOOKUP_ERRORS:  # closed, or without readable bytes
        search.refuse(name)
    if not isinstance(value, np.ndarray) and is_program_class(type(value)):
        look_at_object(search, value, name)


# -- wrappers ----------------------------------------------------------------------------------------------------------


def look_at_parts(search: Search, value: Any, name: str) -> None:
    """The object that an immutable wrapper calls or shows."""
    for each in parts_of(value):
        search.follow(each, name)


def look_at_reference(search: Search, value: Callable[[], Any], name: str) -> None:
    """The referent, while it lives."""
    search.note(partial(referred, value), None, referred(value, None), name)
    if isinstance(value, weakref.WeakMethod):
        search.follow(value(), name)


def referred(reference: Callable[[], Any], _key: Any) -> Any:
    """The referent of a weak reference; for a method, which is made anew each time, its object."""
    found = reference()
    return getattr(found, "__self__", None) if isinstance(reference, weakref.WeakMethod) else found


def look_at_variable(search: Search, value: ContextVar[Any], name: str) -> None:
    """The value in the context, or the variable's default."""
    found = value.get(MISSING)
    search.note(value.get, MISSING, found, name)
    if found is MISSING:
        try:
            search.follow(value.get(), name)
        except LookupError:
            return


def look_at_local(search: Search, value: threading.local, name: str) -> None:
    """The values of the calling thread."""
    get = found_or_missing(partial(threading.local.__getattribute__, value))
    search.state(ContainerContents(value, lambda: vars(value)), name)
    for key in list(vars(value)):
        search.note(get, key, get(key), joined(name, key))


def look_at_reader(search: Search, value: Any, _name: str) -> None:
    """The names that an `attrgetter`, an `itemgetter` or a `methodcaller` reads: "rate" of `attrgetter("rate")`."""
    search.attributes.update(texts_in(value.__reduce__()[1]))
