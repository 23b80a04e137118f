"""The functions of a search, by the kind of object that they examine."""

from __future__ import annotations

import logging
import threading
import weakref
from contextvars import ContextVar
from functools import partial
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, Final

import numpy as np

from .containers import (
    SEQUENCES,
    look_at_array,
    look_at_buffer,
    look_at_dict,
    look_at_local,
    look_at_parts,
    look_at_reader,
    look_at_reference,
    look_at_sequence,
    look_at_slice,
    look_at_variable,
)
from .functions import Code, Extra, ask_by_value, look_at_builtin, look_at_cell, look_at_function, look_at_module
from .kinds import BUFFERS, PROXIES, VIEWS
from .objects import look_at_class, look_at_logger, look_at_other
from .search import Look, Search

_METHODS: Final = (MethodType, staticmethod, classmethod, property)
_PARTS: Final = (*_METHODS, partial, GenericAlias, weakref.finalize, *VIEWS, *PROXIES)
# Examined in this order. An instance of none of these classes is a plain object.
LOOKS: Final[tuple[tuple[Any, Look], ...]] = (
    ((Code, Extra), lambda search, value, name: value.look(search, name)),
    (FunctionType, look_at_function),
    (_PARTS, look_at_parts),
    ((BuiltinFunctionType, MethodWrapperType), look_at_builtin),
    (CellType, look_at_cell),
    (ModuleType, look_at_module),
    (type, look_at_class),
    ((dict, MappingProxyType), look_at_dict),
    (SEQUENCES, look_at_sequence),
    (slice, look_at_slice),
    ((np.ndarray, np.void), look_at_array),
    (BUFFERS, look_at_buffer),
    (weakref.ReferenceType, look_at_reference),
    (ContextVar, look_at_variable),
    (threading.local, look_at_local),
    ((attrgetter, itemgetter, methodcaller), look_at_reader),
    (logging.Logger, look_at_logger),
)


def look_at(search: Search, value: Any, name: str) -> None:
    if ask_by_value(search, value, name):
        return
    for kind, look in LOOKS:
        if isinstance(value, kind):
            look(search, value, name)
            return
    look_at_other(search, value, name)
