"""The header of an .npy array: a Python literal with dtype, order and shape. Versions 1, 2 and 3.

The format is NumPy's (numpy.lib.format). A header is parsed only if it consists of literals, and as literals; it is
limited to NumPy's length. An .npz file is a zip archive whose members are .npy arrays, stored or deflated.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from ..types.meta import DTYPES, MAX_NDIM, MAX_SIZE, Meta, Shape
from ..types.sizes import exact_size
from .header import NAME_LENGTH_SHOWN, FileLimits, FilePiece, TensorEntry, check_name, raw_meta
from .pieces import PieceReader
from .tensor_file import TensorFile
from .zip_directory import read_directory

MAGIC: Final = b"\x93NUMPY"
VERSIONS: Final = {1: (2, "latin-1"), 2: (4, "latin-1"), 3: (4, "utf-8")}  # bytes of the length; encoding
MAX_HEADER_LENGTH: Final = 10_000  # characters of a header, as in NumPy
HEADER_FIELDS: Final = ["descr", "fortran_order", "shape"]
ARRAY_NAME: Final = "array"  # the name of the tensor in an .npy file
# No operator, only these two names, no escape: only brackets can be nested, and Python's tokenizer accepts 200 of them.
LITERALS: Final = re.compile(
    r"""(?:[\s{}()\[\],:]|'[^'\\\n]*'|"[^"\\\n]*"|\d{1,20}(?![\w.])|True\b|False\b)*""", re.ASCII
)
DESCR: Final = re.compile(r"([<>|=])([a-zA-Z])(\d{0,9})(\[\w+\])?", re.ASCII)
NATIVE_ORDER: Final = "<" if sys.byteorder == "little" else ">"
DTYPES_BY_DESCR: Final = {dtype.str[1:]: name for name, dtype in DTYPES.items()}  # f4 -> float32
TEXT_KINDS: Final = "SU"
CHARACTER_BYTES: Final = {"U": 4}  # bytes of the unit that the number in a descr counts


def read_npy(file: TensorFile, *, raw: bool) -> dict[str, TensorEntry]:
    """The only entry of an .npy file. MetadataError if it is malformed, or if bytes follow its array."""
    piece = FilePiece(0, file.size, file.size)
    return {ARRAY_NAME: array_entry(file, ARRAY_NAME, piece, file.peek, raw=raw)}


def array_entry(
    file: TensorFile, name: str, piece: FilePiece, peek: Callable[[int, int], bytes], *, raw: bool
) -> TensorEntry:
    """The entry of an array that fills a piece of a file; `peek(offset, count)` returns bytes of the piece.

    Raises MetadataError if it is malformed. A valid array that cannot be used is an entry without a meta.
    """
    try:
        text, skip = _header_text(peek, piece.size)
        descr, fortran, shape = _parsed(text)
        meta, swapped, why = _meta(descr, shape, piece.size - skip, raw=raw)
    except ValueError as error:
        raise file.malformed(f"array {name[:NAME_LENGTH_SHOWN]!r}: {error}") from None
    ordered = meta is None or meta.ndim < 2  # both orders are the same
    return TensorEntry(name, meta, piece, skip, fortran and not ordered, swapped, why)


def _header_text(peek: Callable[[int, int], bytes], size: int) -> tuple[str, int]:
    """The header's text, and its end."""
    at = len(MAGIC) + 2
    version = tuple(peek(len(MAGIC), 2)) if size >= at else ()
    if len(version) != 2 or version[0] not in VERSIONS or version[1]:
        raise ValueError(f"has an unknown version: {'.'.join(map(str, version)) or 'it ends before that'}")
    width, encoding = VERSIONS[version[0]]
    if size < at + width:
        raise ValueError("ends in its header")
    length = int.from_bytes(peek(at, width), "little")
    end = at + width + length
    if length > MAX_HEADER_LENGTH:
        raise ValueError(f"its header has {length} bytes; at most {MAX_HEADER_LENGTH} are read")
    if end > size:
        raise ValueError(f"its header has {length} bytes, beyond its end")
    return peek(at + width, length).decode(encoding), end


def _parsed(text: str) -> tuple[Any, bool, Shape]:
    """The fields of a header."""
    if not LITERALS.fullmatch(text):
        raise ValueError(f"its header is not a plain literal: {text[:NAME_LENGTH_SHOWN]!r}")
    try:
        node = ast.parse(text.strip(), mode="eval").body
        pairs = list(zip(node.keys, node.values, strict=True)) if isinstance(node, ast.Dict) else []
        fields = [(ast.literal_eval(key) if key else None, ast.literal_eval(value)) for key, value in pairs]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"its header is not a plain literal: {text[:NAME_LENGTH_SHOWN]!r}") from None
    if sorted(repr(key) for key, _ in fields) != sorted(map(repr, HEADER_FIELDS)):
        raise ValueError(f"its header is not a dict of {', '.join(HEADER_FIELDS)}: {text[:NAME_LENGTH_SHOWN]!r}")
    header = dict(fields)
    shape, fortran = header["shape"], header["fortran_order"]
    if (
        type(shape) is not tuple
        or not all(type(n) is int and 0 <= n <= MAX_SIZE for n in shape)
        or len(shape) > MAX_NDIM
    ):
        raise ValueError(f"its shape is not a tuple of at most {MAX_NDIM} whole numbers from 0 to 2**63 - 1")
    if type(fortran) is not bool:
        raise ValueError("its fortran_order is neither True nor False")
    return header["descr"], fortran, shape


def _meta(descr: Any, shape: Shape, nbytes: int, *, raw: bool) -> tuple[Meta | None, bool, str]:
    """The meta, or the reason why there is none, and whether its bytes are in the other order."""
    if type(descr) is not str:
        return None, False, "is an array of records, which tensord does not support"
    match = DESCR.fullmatch(descr)
    if match is None:
        raise ValueError(f"NumPy has no dtype {descr[:NAME_LENGTH_SHOWN]!r}")
    order, kind, count, _ = match.groups()
    if kind == "O":
        return None, False, "holds Python objects, whose pickles could run any code and are never read"
    known = DTYPES_BY_DESCR.get(kind + count)
    itemsize = DTYPES[known].itemsize if known else int(count or 0) * CHARACTER_BYTES.get(kind, 1)
    swapped = order in "<>" and order != NATIVE_ORDER and itemsize > 1
    if math.prod(shape) * itemsize != nbytes:
        raise ValueError(f"{nbytes} bytes do not make a {descr}{list(shape)}")
    if known:
        return Meta.of(shape, known), swapped, ""
    if raw:
        meta = raw_meta(shape, 0 if kind in TEXT_KINDS else itemsize, nbytes)
        return meta, swapped and meta.dtype.itemsize > 1, ""
    return None, False, f"is {descr}, a dtype that tensord does not support; load it as raw bits, or convert it"


SUFFIX: Final = ".npy"
USUAL_HEADER_BYTES: Final = (
    128  # bytes of an array's header; reading many longer ones would take longer than many arrays
)


def read_npz(file: TensorFile, *, raw: bool, limits: FileLimits) -> dict[str, TensorEntry]:
    """The entries of an archive, in the order of their bytes. Only the beginning of a deflated member is inflated.

    A member that is not an array is an entry without a meta. Raises as `read_directory` and `array_entry` do.
    """
    entries: dict[str, TensorEntry] = {}
    left = MAX_HEADER_LENGTH + USUAL_HEADER_BYTES * limits.entries  # bytes of headers
    for name, piece in read_directory(file, limits):
        stem = name.removesuffix(SUFFIX)
        check_name(file, stem, limits)
        if stem in entries:
            raise file.malformed(f"two members are called {stem[:NAME_LENGTH_SHOWN]!r}")
        entries[stem] = _entry(file, stem, piece, raw=raw)
        left -= entries[stem].skip
        if left < 0:
            raise file.excessive(
                f"the headers of its arrays have more than {exact_size(USUAL_HEADER_BYTES * limits.entries)}"
            )
    return entries


def _entry(file: TensorFile, name: str, piece: FilePiece, *, raw: bool) -> TensorEntry:
    peek = _inflating(file, piece) if piece.deflated else _stored(file, piece)
    if piece.size < len(MAGIC) or peek(0, len(MAGIC)) != MAGIC:
        return TensorEntry(name, None, piece, error="is not an array: its member of the archive is not a .npy file")
    return array_entry(file, name, piece, peek, raw=raw)


def _stored(file: TensorFile, piece: FilePiece) -> Callable[[int, int], bytes]:
    return lambda offset, count: file.peek(piece.offset + offset, count)


def _inflating(file: TensorFile, piece: FilePiece) -> Callable[[int, int], bytes]:
    reader, head = PieceReader(file, piece), bytearray()

    def peek(offset: int, count: int) -> bytes:
        more = bytearray(max(offset + count - len(head), 0))
        reader.read_into(more)
        head.extend(more)
        return bytes(head[offset : offset + count])

    return peek
