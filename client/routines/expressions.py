"""The texts of expressions in the program's source, for errors that name them."""

from __future__ import annotations

import linecache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from ..locations.frames import OWNERS, PROGRAM


def expression_of(frame: FrameType | None) -> str:
    """The text of the call that the program's code is at, "" if its source is not there."""
    while frame is not None and OWNERS[frame.f_code.co_filename] is not PROGRAM:
        frame = frame.f_back
    return "" if frame is None else expression_at(frame.f_code, frame.f_lasti, frame.f_globals)


def expression_at(code: CodeType, offset: int, names: dict[str, Any] | None = None) -> str:
    """The text that an instruction was made of, "" if its source is not there. `names`: the globals of its module."""
    line, end, first, last = next(islice(code.co_positions(), offset // 2, None), (None, None, None, None))
    if line is None or first is None or last is None or line != end:
        return ""
    text = linecache.getline(code.co_filename, line, names)
    return text.encode()[first:last].decode(errors="replace")
