"""Location numbers: where an instruction was issued, as one integer that costs nothing to carry.

The low bits are the number of a LOCATION message, a line of the user's code; the bits above them are the number of a
SPAN message, the path of the open spans. Either may be 0, for none. The first 32,767 spans fit 32 bits with their
lines, which msgpack encodes in five bytes.
"""

from __future__ import annotations

from typing import Final

LINE_BITS: Final = 17
LINE_LIMIT: Final = 1 << LINE_BITS  # numbers of lines are below
SPAN_LIMIT: Final = 1 << 25  # numbers of spans are below: twice as many as the largest trace ring has records
LINE_MASK: Final = LINE_LIMIT - 1  # the bits of the line
MAX_SPAN_DEPTH: Final = 32  # spans in a path
MAX_SPAN_NAME_LENGTH: Final = 128  # characters of a span's name
CALLED_BY: Final = " <- "  # in the text of a line, between a line and its caller


def line_of(location: int) -> int:
    """The number of the line."""
    return location & LINE_MASK


def span_of(location: int) -> int:
    """The number of the span."""
    return location >> LINE_BITS
