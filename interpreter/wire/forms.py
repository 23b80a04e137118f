"""What a well-formed message is. Bytes from outside become values of known types here, once; nothing behind it checks
them again.

A form says of which types the fields of a message are, by its kind. Whether ids exist, counts agree and metas fit is
for admission, which knows the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..errors import ProtocolError
from ..types.meta import MAX_NDIM
from .messages import ATOMIC, UNGROUPED, MessageKind

Check: TypeAlias = Callable[[Any], bool]

LARGEST = 2**63 - 1
SEQUENCES = frozenset({tuple, list})
NESTED = frozenset({tuple, list, dict})
KINDS = frozenset({int, MessageKind})
OPERANDS = frozenset({bool, int, float, complex})


def is_natural(value: Any) -> bool:
    """A number of something, a request, a location: not negative."""
    return type(value) is int and 0 <= value <= LARGEST


def is_id(value: Any) -> bool:
    """The id of a tensor or of a chain."""
    return type(value) is int and 0 < value <= LARGEST


def is_text(value: Any) -> bool:
    """A string."""
    return type(value) is str


def is_anything(_value: Any) -> bool:
    """Checked by whoever reads it."""
    return True


def is_flag(value: Any) -> bool:
    """True or False."""
    return type(value) is bool


def is_callback(value: Any) -> bool:
    """A function, or None for a client that calls back itself."""
    return value is None or callable(value)


def is_sequence(value: Any) -> bool:
    """A list; what it holds is checked by whoever reads it."""
    return type(value) in SEQUENCES


def is_operands(value: Any) -> bool:
    """Ids and scalars."""
    return type(value) in SEQUENCES and OPERANDS.issuperset(map(type, value))


def is_array(value: Any) -> bool:
    """A payload."""
    return type(value) is np.ndarray


def many(check: Check, least: int = 0) -> Check:
    """A sequence of such values."""

    def check_many(value: Any) -> bool:
        return type(value) in SEQUENCES and len(value) >= least and all(map(check, value))

    return check_many


def is_shape(value: Any) -> bool:
    """The sizes of at most 64 dimensions."""
    return type(value) in SEQUENCES and len(value) <= MAX_NDIM and all(map(is_natural, value))


IDS = many(is_id)
TEXTS = many(is_text)

# The fields after the kind, in their order: what `messages` says in prose.
FORMS: dict[int, dict[str, Check]] = {
    MessageKind.CALL: {
        "signature": is_natural,
        "inputs": is_operands,
        "outputs": IDS,
        "released": is_natural,
        "location": is_natural,
    },
    MessageKind.RELEASE: {"ids": IDS},
    MessageKind.UPLOAD: {
        "output": is_id,
        "shape": is_shape,
        "dtype": is_text,
        "device": is_text,
        "payload": is_array,
        "location": is_natural,
    },
    MessageKind.FETCH: {"id": is_id, "request": is_natural, "location": is_natural, "hold": is_natural},
    MessageKind.WAIT: {"ids": many(is_id, least=1), "request": is_natural, "location": is_natural},
    MessageKind.SYNC: {"request": is_natural, "location": is_natural},
    MessageKind.EFFECT: {
        "ids": IDS,
        "chain": is_id,
        "callback": is_callback,
        "request": is_natural,
        "location": is_natural,
    },
    MessageKind.CHAIN: {"chain": is_id},
    MessageKind.SIGNATURE: {
        "number": is_natural,
        "op": is_text,
        "attributes": is_anything,
        "metas": many(is_anything),
        "device": is_text,
        "targets": is_anything,
    },
    MessageKind.LOCATION: {"number": is_natural, "text": is_text},
    MessageKind.PUBLISH: {"names": TEXTS, "ids": IDS, "request": is_natural},
    MessageKind.LOOKUP: {"names": TEXTS, "ids": IDS, "request": is_natural, "snapshot": is_flag},
    MessageKind.UNPUBLISH: {"names": TEXTS, "request": is_natural},
    MessageKind.TO_DEVICE: {"id": is_id, "output": is_id, "device": is_text, "location": is_natural},
    MessageKind.RESTART: {"generation": is_natural},
    MessageKind.ATOMIC: {"messages": is_sequence},
    MessageKind.NAMES: {"request": is_natural},
    MessageKind.QUERY: {"what": is_text, "arguments": is_sequence, "request": is_natural},
}


CHECKS: dict[int, tuple[Check, ...]] = {int(kind): tuple(form.values()) for kind, form in FORMS.items()}


def check_form(message: Sequence[Any]) -> None:
    """Raise ProtocolError if the message is not of its kind's form."""
    if not has_form(message):
        complain(message)
    if message[0] == ATOMIC:
        check_group(message[1])


def has_form(message: Sequence[Any]) -> bool:
    """Is it of its kind's form, as far as one looks into groups from outside? On the way of every message."""
    if type(message) not in SEQUENCES or not message or type(message[0]) not in KINDS:
        return False
    checks = CHECKS.get(message[0])
    if checks is None or len(message) != len(checks) + 1:
        return False
    for position, check in enumerate(checks, 1):  # noqa: SIM110 - a generator costs as much as the checks
        if not check(message[position]):
            return False
    return True


def complain(message: Sequence[Any]) -> None:
    """Raise ProtocolError, saying what is wrong with the message."""
    form = form_of(message)
    if len(message) != len(form) + 1:
        kind = MessageKind(message[0]).name
        raise ProtocolError(f"a {kind} message has {len(form)} fields after its kind, not {len(message) - 1}")
    position = 1
    for check in form.values():
        if not check(message[position]):
            kind, name = MessageKind(message[0]).name, list(form)[position - 1]
            raise ProtocolError(f"the field {name!r} of a {kind} message is {shown(message[position])}")
        position += 1


def check_group(messages: Sequence[Any]) -> None:
    """Each message of a group is of its kind's form, and of a kind that a group may hold."""
    for message in messages:
        form_of(message)
        if message[0] in UNGROUPED:
            raise ProtocolError(f"a group holds no {MessageKind(message[0]).name} message")
        check_form(message)


def depth_exceeds(value: Any, levels: int) -> bool:
    """Is the value nested deeper than that many lists or dicts? Looked at level by level, so that none is too deep."""
    found = [value]
    for _ in range(levels):
        found = [inner for outer in found if type(outer) in NESTED for inner in items_of(outer)]
        if not found:
            return False
    return any(type(inner) in NESTED for inner in found)


def items_of(value: Any) -> Any:
    """What a list or a dict holds."""
    return (*value, *value.values()) if type(value) is dict else value


def form_of(message: Sequence[Any]) -> dict[str, Check]:
    """The form of a message's kind; ProtocolError if it has none."""
    form = None
    if type(message) in SEQUENCES and message and type(message[0]) in KINDS:
        form = FORMS.get(message[0])
    if form is None:
        raise ProtocolError(f"not a message of any kind: {shown(message)}")
    return form


def field_of(message: Sequence[Any], name: str) -> Any:
    """A field of a message that may be damaged, or None if it has none of that name that is in order."""
    try:
        form = form_of(message)
    except ProtocolError:
        return None
    if name not in form:
        return None
    position = list(form).index(name) + 1
    value = message[position] if position < len(message) else None
    return value if form[name](value) else None


def shown(value: Any) -> str:
    """A value from outside, short enough for a message."""
    plain = value.bit_length() <= 128 if isinstance(value, int) else isinstance(value, str | float | bytes)
    text = repr(value) if plain else type(value).__name__  # Python refuses to write down ints of many digits
    return text if len(text) <= 40 else f"{text[:40]}..."


def outputs_of(message: Sequence[Any]) -> Sequence[int]:
    """The ids that a message, which may be damaged, was to define or to overwrite; those of each in a group."""
    group = field_of(message, "messages")
    if group is None:
        return outputs_of_one(message)
    return tuple(id_ for inner in group if not is_group(inner) for id_ in outputs_of_one(inner))


def is_group(message: Any) -> bool:
    """Is it, damaged or not, a group? One inside of another is not looked into."""
    return type(message) in SEQUENCES and len(message) > 0 and message[0] == ATOMIC


def outputs_of_one(message: Sequence[Any]) -> Sequence[int]:
    """The ids that a message that is no group was to define."""
    outputs = field_of(message, "outputs")
    if outputs is not None:
        return tuple(outputs)
    output = field_of(message, "output")
    return () if output is None else (output,)
