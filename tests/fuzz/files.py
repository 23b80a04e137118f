"""Files of tensors: sound ones come back as they were, mangled ones are refused or read as others read them."""

from __future__ import annotations

import random

from ..interpreter.files.mangling import check_any, check_sound, mangled


def try_file(rnd: random.Random) -> None:
    """Sound files of each format, and one with errors in it."""
    check_sound(rnd)
    check_any(mangled(rnd), raw=rnd.random() < 0.2)


def try_content(source: bytes) -> None:
    """Any bytes, also as the header of each format."""
    check_any(source)
    check_any(len(source).to_bytes(8, "little") + source)
    check_any(b"\x93NUMPY\1\0" + source)
    check_any(b"PK\3\4" + source)
