"""Files of tensors: valid ones are read back unchanged; corrupted ones are refused, or read as NumPy and safetensors
read them."""

from __future__ import annotations

import random

from ..interpreter.files.mangling import check_any, check_sound, mangled


def try_file(rnd: random.Random) -> None:
    """Try valid files of each format, then one with errors."""
    check_sound(rnd)
    check_any(mangled(rnd), raw=rnd.random() < 0.2)


def try_content(source: bytes) -> None:
    """Try any bytes as a file, and as the header of each format."""
    check_any(source)
    check_any(len(source).to_bytes(8, "little") + source)
    check_any(b"\x93NUMPY\1\0" + source)
    check_any(b"PK\3\4" + source)
