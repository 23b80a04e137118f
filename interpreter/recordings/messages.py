"""The messages in a recording: from checked entries to named messages, one by one, including those of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..errors import ProtocolError
from ..wire.fields import SEQUENCES
from ..wire.forms import decode_message, has_kind, name_fields
from ..wire.message_kinds import ATOMIC, UPLOAD
from ..wire.messages import Atomic, NamedMessage, Upload, with_payload

_NOTHING: Final = np.empty(0)


def intact_message(array: Any) -> NamedMessage | None:
    """The message in an array, an upload with an empty payload; None for a damaged message."""
    if has_kind(array) and array[0] == UPLOAD and len(array) == len(Upload._fields) + 1:
        array = with_payload(array, _NOTHING)
    try:
        found: NamedMessage = decode_message(array)
    except ProtocolError:
        return None
    return found


def messages_in(array: Any) -> Iterator[NamedMessage]:
    """The message, or those of the group; without the damaged ones."""
    group = name_fields(array, Atomic)
    inner = group.messages if group is not None and type(group.messages) in SEQUENCES else (array,)
    for one in inner:
        message = None if has_kind(one) and one[0] == ATOMIC else intact_message(one)
        if message is not None:
            yield message
