"""Examines objects and classes, for the search of the state that a function may read (`search`).

Of an object of the program, the attributes count that the code names; of an object of a library, all count. Of a class,
methods count that the code names, or that Python calls by itself.
"""

from __future__ import annotations

import io
import logging
from abc import ABCMeta, get_cache_token
from collections.abc import Callable
from functools import _lru_cache_wrapper, partial
from operator import itemgetter
from types import FunctionType, MemberDescriptorType
from typing import Any, Final

from ..capture.structure import joined
from ..linking.linked_routine import LinkedRoutine
from ..linking.linking import LinkedProgram
from .contents import CachedResults, ContainerContents, dict_of
from .functions import look_at_decimals
from .guard_checks import found_or_missing
from .kinds import (
    INERT,
    NOT_READ,
    PACKAGE,
    TRUSTED,
    is_constant,
    is_in_c,
    is_iterator,
    is_program_class,
    is_random,
    is_trusted,
    root,
    slots_of,
    wrapped_by,
)
from .names import texts_in
from .search import Search

LINKED: Final = (LinkedProgram, LinkedRoutine)
_METHODS: Final = (FunctionType, staticmethod, classmethod, property)
_OF_CLASSES: Final = ("__name__", "__qualname__")
# Modules whose classes, as bases, read no attributes of their objects.
_BARE: Final = frozenset(("builtins", "typing", "abc", "collections.abc", "typing_extensions"))
# Libraries whose objects hold others, and read none of their attributes.
_HOLDERS: Final = frozenset(
    ("types", "collections", "weakref", "argparse", "queue", "functools", "contextlib", "builtins")
)
_LEVELS: Final = frozenset(("isEnabledFor", "getEffectiveLevel"))


def look_at_other(search: Search, value: Any, name: str) -> None:
    """An object of a kind that no other function examines."""
    kind = type(value)
    if (wrapped := wrapped_by(value)) is not None:
        search.follow(wrapped, name)
        search.follow(getattr(value, "__self__", None), name)  # a method of a routine, perhaps
        if isinstance(value, _lru_cache_wrapper):
            search.state(CachedResults(value), f"{name}.cache_info", renewed=True)
    elif isinstance(value, io.IOBase):
        if "closed" in search.attributes:
            search.attribute(value, "closed", name)
    elif isinstance(value, LINKED) or is_random(value):
        return
    elif is_constant(value):
        if kind.__module__ == "decimal":
            look_at_decimals(search)
        if dict_of(value):
            look_at_object(search, value, name)
    elif is_iterator(value):
        search.refuse(name)
    elif is_trusted(value):
        if isinstance(value, TRUSTED):
            look_at_named(search, value, name)
        search.follow(getattr(value, "__origin__", None) if kind.__module__ == "typing" else None, name)
    else:
        look_at_object(search, value, name)
        if isinstance(value, BaseException):
            search.attribute(value, "args", name)
        if is_in_c(kind):
            search.refuse(name)


def look_at_logger(search: Search, value: logging.Logger, name: str) -> None:
    """A logger: only the attributes that code reads, since log records reach no program."""
    look_at_named(search, value, name)
    if search.attributes & _LEVELS:
        search.shape(level_of, value, name, known=("level", id(value)))


def look_at_named(search: Search, value: Any, name: str) -> None:
    """The named attributes of an object that is not examined otherwise."""
    attributes = dict_of(value)
    if attributes is not None:
        search.members(attributes.__getitem__, attributes, name, search.attributes)


def level_of(logger: logging.Logger) -> tuple[Any, ...]:
    """The levels that a logger lets through."""
    return (logger.getEffectiveLevel(), logger.disabled, logger.manager.disable)


def look_at_object(search: Search, value: Any, name: str) -> None:
    """The attributes of an object, and its class."""
    kind = type(value)
    of_program = is_program_class(kind)
    only = None if not of_program or is_whole(search, value, kind) else search.attributes
    if not of_program and root(kind.__module__) not in _HOLDERS:
        search.deepen()
    attributes = dict_of(value)
    if attributes is not None:
        search.shape(tuple, attributes, name)
        search.members(attributes.__getitem__, attributes, name, only)
    if of_program or attributes is not None:
        search.kind(value, name)
    for slot in slots_of(kind):
        if only is None or slot in only:
            get = found_or_missing(partial(object.__getattribute__, value))
            search.note(get, slot, get(slot), joined(name, slot))
    if of_program:
        search.follow(kind, kind.__name__)


def is_whole(search: Search, value: Any, kind: type) -> bool:
    """Return whether all attributes may count, named by the code or not."""
    if search.asked or id(value) in search.whole:
        return True
    for base in kind.__mro__[:-1]:
        if "__getattr__" in vars(base) or "__getattribute__" in vars(base):
            return True
        if base.__module__ not in _BARE and root(base.__module__) != PACKAGE and not is_program_class(base):
            return True
    return False


def look_at_class(search: Search, kind: type, name: str) -> None:
    """The attributes and methods that the code names, or that Python uses by itself."""
    if kind.__module__ == "decimal":
        look_at_decimals(search)
    if "isinstance" in search.attributes and isinstance(kind, ABCMeta):
        search.note(registered, None, get_cache_token(), f"{name}.register", known="classes that are registered")
    if kind.__module__ == "builtins" or root(kind.__module__) in INERT:
        return
    for base in kind.__mro__[:-1]:
        if is_program_class(base):
            look_at_base(search, base, name, whole=id(kind) in search.whole)
        elif root(base.__module__) not in INERT and base is kind:  # a library's, by itself
            data = {key: each for key, each in vars(base).items() if not isinstance(each, FunctionType | property)}
            search.members(vars(base).__getitem__, data, name, search.attributes)
    if is_program_class(type(kind)):
        search.follow(type(kind), type(kind).__name__)


def registered(_key: Any) -> Any:
    """A token that changes when a class is registered with an abstract one."""
    return get_cache_token()


def look_at_base(search: Search, base: type, name: str, *, whole: bool) -> None:
    """A class of the program, without its bases."""
    namespace = vars(base)
    if "__match_args__" in search.attributes:  # positions of a pattern stand for these names
        search.attributes.update(texts_in((namespace.get("__match_args__"),)))
    only = None if whole or search.asked or id(base) in search.whole else search.attributes
    search.classes[id(namespace)] = frozenset(namespace)
    search.attribute(base, "__mro__", name)
    search.shape(len, namespace, name, known=("len", id(base)))  # a new name hides those of the bases
    methods = []
    for key, member in namespace.items():
        unasked = key.startswith("__") and key.endswith("__")  # Python calls it even if no code names it
        if only is not None and key not in only and not unasked:
            continue
        if isinstance(member, _METHODS):
            methods.append(key)
            search.follow(member, joined(name, key))
        elif not isinstance(member, MemberDescriptorType) and (key not in NOT_READ or key in search.attributes):
            search.note(namespace.__getitem__, key, member, joined(name, key), known=("class", id(base), key))
    if methods:
        search.shape(itemgetter(*methods), namespace, name, known=("methods", id(base), *methods))
    look_at_type(search, base, name)


def look_at_type(search: Search, kind: type, name: str) -> None:
    """The state that Python keeps for a class outside of its attributes."""
    for attribute in search.attributes.intersection(_OF_CLASSES):
        search.attribute(kind, attribute, name)
    if "__subclasses__" in search.attributes:
        subclasses: Callable[[], list[type]] = partial(type.__subclasses__, kind)
        search.state(ContainerContents(kind, subclasses), joined(name, "__subclasses__"))
        for each in subclasses():
            search.follow(each, each.__name__)
