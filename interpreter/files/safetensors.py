"""The header of a safetensors file: the length of a JSON text, that text, and then the tensors without gaps.

The specification (https://github.com/huggingface/safetensors, "Format") defines the format, and what has to be refused:
no duplicate keys, no holes and no overlaps between tensors, nothing after the last one. An object with fields that the
format does not have is refused, too, since their meaning for the bytes is unknown.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from typing import Any, Final, NoReturn

from ..types.meta import MAX_NDIM, MAX_SIZE, Meta, Shape
from ..types.sizes import exact_size
from .header import NAME_LENGTH_SHOWN, FileLimits, FilePiece, TensorEntry, check_count, check_name, raw_meta
from .tensor_file import TensorFile

FIRST_BYTE: Final = b"{"
LENGTH_BYTES: Final = 8  # bytes that hold the header's length
MAX_HEADER_BYTES: Final = 100_000_000  # bytes of a header, by the format
METADATA_KEY: Final = "__metadata__"
ENTRY_FIELDS: Final = {"dtype", "shape", "data_offsets"}
SWAPPED: Final = sys.byteorder == "big"  # the format is little-endian

DTYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
# Bits of an element, of the dtypes that tensord lacks.
OTHER_BITS: Final = {
    "BF16": 16,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}
# A tensor takes an object, two lists and some commas. A header with many more would make objects of many times its
# size, so it is refused before it is parsed.
BRACKETS_PER_TENSOR: Final = 4
COMMAS_PER_TENSOR: Final = 16
SPARE_TENSORS: Final = 1024  # the allowance for metadata and long shapes, counted in tensors


def read_safetensors(
    file: TensorFile, *, raw: bool, limits: FileLimits
) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    """The entries of a file, in the order of their bytes, and the texts of its metadata."""
    text = _header_text(file, limits)
    fields = _parsed(file, text)
    metadata = _metadata(file, fields.pop(METADATA_KEY, {}))
    check_count(file, len(fields), limits)
    begin = LENGTH_BYTES + len(text)
    entries = [_entry(file, name, value, begin, raw=raw) for name, value in fields.items()]
    for entry in entries:
        check_name(file, entry.name, limits)
    entries.sort(key=_byte_range)
    _check_cover(file, entries, begin)
    return {entry.name: entry for entry in entries}, metadata


def _header_text(file: TensorFile, limits: FileLimits) -> bytes:
    length = int.from_bytes(file.peek(0, LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        raise file.malformed(f"its header would have {length} bytes; the format allows {MAX_HEADER_BYTES}")
    if length > file.size - LENGTH_BYTES:
        raise file.malformed(f"its header would have {length} bytes, beyond its end; was it cut short?")
    if length > limits.header:
        raise file.excessive(f"its header has {exact_size(length)}; the limit is {exact_size(limits.header)}")
    text = file.read(LENGTH_BYTES, length)
    if not text.startswith(FIRST_BYTE) or not text.rstrip(b" ").endswith(b"}"):
        raise file.malformed("its header does not begin with { and end with }, or spaces after it")
    most = limits.entries + SPARE_TENSORS
    if text.count(b"{") + text.count(b"[") > BRACKETS_PER_TENSOR * most or text.count(b",") > COMMAS_PER_TENSOR * most:
        raise file.excessive(f"its header has more parts than {limits.entries} tensors, the limit, have")
    return text


def _parsed(file: TensorFile, text: bytes) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = _DECODER.decode(text.decode())
    except RecursionError:
        raise file.malformed("its header is nested too deeply") from None
    except ValueError as error:  # of the text, its encoding, a number, or from the hooks below
        raise file.malformed(f"its header is not valid JSON text: {error}") from None
    return fields


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:NAME_LENGTH_SHOWN]!r} occurs twice")
    return fields


def _refuse_float(text: str) -> NoReturn:
    raise ValueError(f"{text[:NAME_LENGTH_SHOWN]} is not a whole number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_refuse_float, parse_constant=_refuse_float)


def _metadata(file: TensorFile, value: Any) -> dict[str, str]:
    if type(value) is not dict or not all(type(text) is str for text in value.values()):
        raise file.malformed(f"{METADATA_KEY} is not an object of texts")
    try:
        for texts in value.items():
            "".join(texts).encode()
    except UnicodeEncodeError:
        raise file.malformed(f"{METADATA_KEY} holds half a character") from None
    return value


def _entry(file: TensorFile, name: str, value: Any, data: int, *, raw: bool) -> TensorEntry:
    """The entry of a tensor; `data`: the offset in the file at which the tensors begin."""
    try:
        begin, nbytes, meta, why = _fields(value, raw=raw)
    except ValueError as error:
        raise file.malformed(f"tensor {name[:NAME_LENGTH_SHOWN]!r}: {error}") from None
    return TensorEntry(name, meta, FilePiece(data + begin, nbytes, nbytes), 0, False, SWAPPED, why)


def _fields(value: Any, *, raw: bool) -> tuple[int, int, Meta | None, str]:
    """The begin and number of a tensor's bytes, and its meta, or the reason why it has none."""
    if type(value) is not dict or value.keys() != ENTRY_FIELDS:
        raise ValueError("a tensor is described by an object with dtype, shape and data_offsets, and nothing else")
    shape = _naturals(value["shape"], 0, MAX_NDIM, "shape")
    begin, end = _naturals(value["data_offsets"], 2, 2, "data_offsets")
    if begin > end:
        raise ValueError(f"its data_offsets {[begin, end]} go backwards")
    return begin, end - begin, *_meta(value["dtype"], shape, end - begin, raw=raw)


def _naturals(value: Any, least: int, most: int, what: str) -> Shape:
    if type(value) is not list or not least <= len(value) <= most:
        raise ValueError(f"its {what} is not a list of {least} to {most} numbers")
    for number in value:
        if type(number) is not int or not 0 <= number <= MAX_SIZE:
            raise ValueError(f"its {what} holds something else than whole numbers from 0 to 2**63 - 1")
    return tuple(value)


def _meta(dtype: Any, shape: Shape, nbytes: int, *, raw: bool) -> tuple[Meta | None, str]:
    """The meta, or why there is none."""
    known = DTYPES.get(dtype) if type(dtype) is str else None
    if known is not None:
        meta = Meta.of(shape, known)
        _check_size(dtype, shape, meta.nbytes * 8, nbytes)
        return meta, ""
    if type(dtype) is not str or not (dtype.isprintable() and 0 < len(dtype) <= NAME_LENGTH_SHOWN):
        raise ValueError("its dtype is not a name")
    bits = OTHER_BITS.get(dtype, 0)
    if bits:
        _check_size(dtype, shape, math.prod(shape) * bits, nbytes)
    if raw:
        return raw_meta(shape, bits // 8 if bits % 8 == 0 else 0, nbytes), ""
    return None, f"is {dtype}, a dtype that tensord does not support; load it as raw bits, or convert it"


def _check_size(dtype: str, shape: Shape, bits: int, nbytes: int) -> None:
    if bits != 8 * nbytes:
        raise ValueError(f"{nbytes} bytes do not make a {dtype}{list(shape)}")


def _byte_range(entry: TensorEntry) -> tuple[int, int]:
    return entry.piece[:2]


def _check_cover(file: TensorFile, entries: list[TensorEntry], begin: int) -> None:
    """Check that each byte after the header belongs to exactly one tensor."""
    at = begin
    for name, _, piece, *_ in entries:
        if piece.offset != at:
            what = "overlaps the one before it" if piece.offset < at else "leaves a hole before it"
            raise file.malformed(
                f"tensor {name[:NAME_LENGTH_SHOWN]!r} {what}: it begins at {piece.offset - begin}, not at {at - begin}"
            )
        at += piece.length
    if at != file.size:
        raise file.malformed(
            f"its tensors take {at - begin} bytes and there are {file.size - begin}; was it cut short?"
        )
