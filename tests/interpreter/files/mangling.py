"""Files of tensors with one or two errors, and checks of how they are read."""

from __future__ import annotations

import copy
import io
import json
import random
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from safetensors import numpy as reference

from tensord.interpreter.errors import FileError, TensordError
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.header import FileHeader, FileLimits, Format
from tensord.interpreter.files.safetensors import DTYPES, LENGTH_BYTES
from tensord.interpreter.files.tensor_file import TensorFile
from tensord.interpreter.files.values import digest, read_array, read_range

from .sound_files import archive, npy_of, opened, safetensors

LIMITS: Final = FileLimits(header=1 << 16, entries=64, name=64)
MEMORY: Final = 1 << 22  # bytes that describing may take at a time
LARGEST: Final = 1 << 20  # bytes of an entry that is read
LONGEST: Final = 1000  # characters of an error
NAMES: Final = ("a", "b", "weight", "layers.0.bias", "é")
SHAPES: Final = ((), (0,), (1,), (3,), (2, 3), (3, 1, 2), (0, 4), (40, 7))
NUMBERS: Final = (0, 1, 2, 3, 7, 8, 0x7F, 0xFF, 0xFFFF, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
STRANGE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 1.0, float("nan"), float("inf"), "", "F32", "BF16", "F4", "X"),
    *("__metadata__", "\ud800", "a\nb", "y" * 3000, [], {}, [[]], [0], [0, 0], [0, 8], [8, 0], {"dtype": "U8"}),
)
SNIPPETS: Final = (
    *("{", "}", "(", ")", "[", "]", "'", '"', ",", ":", "\\", "\n", "\0", "1", "9" * 30, "-", "1L", "True", "None"),
    *(
        "'descr'",
        "'shape'",
        "'<f8'",
        "'>i2'",
        "'|b1'",
        "'|O'",
        "'<M8[s]'",
        "[('a', '<i4')]",
        "lambda: 0",
        "1if 1else 2",
    ),
)

Arrays = dict[str, Any]


def random_arrays(rnd: random.Random) -> Arrays:
    """A few arrays, with any bits."""
    arrays: Arrays = {}
    for name in rnd.sample(NAMES, rnd.randrange(4)):
        dtype, shape = np.dtype(rnd.choice(list(DTYPES.values()))), rnd.choice(SHAPES)
        count = int(np.prod(shape)) * dtype.itemsize
        bits = np.frombuffer(rnd.randbytes(count), np.uint8) & (1 if dtype == np.bool_ else 0xFF)
        arrays[name] = bits.view(dtype).reshape(shape)
    return arrays


def as_safetensors(arrays: Arrays, rnd: random.Random) -> bytes:
    """The arrays in a safetensors file."""
    return bytes(reference.save(arrays, {"some": "text"} if rnd.random() < 0.3 else None))


def as_npy(array: Any, rnd: random.Random) -> bytes:
    """An array in an .npy file, of any order and version."""
    stored = np.array(array, array.dtype.newbyteorder(rnd.choice("<>=")), order=rnd.choice(("C", "F")))
    header = np.lib.format.header_data_from_array_1_0(stored)
    order: Any = "F" if header["fortran_order"] else "C"
    return npy_of(repr(header), stored.tobytes(order), rnd.choice((1, 2, 3)))


def as_npz(arrays: Arrays, rnd: random.Random) -> bytes:
    """The arrays in an archive."""
    members = {f"{name}.npy": as_npy(array, rnd) for name, array in arrays.items()}
    return archive(members, rnd.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def check_sound(rnd: random.Random) -> None:
    """Check that a written file is read back unchanged."""
    arrays = random_arrays(rnd)
    check_same(as_safetensors(arrays, rnd), arrays)
    check_same(as_npz(arrays, rnd), arrays)
    for array in arrays.values():
        check_same(as_npy(array, rnd), {"array": array})


def check_same(content: bytes, arrays: Mapping[str, Any]) -> None:
    """Check that a file has these arrays, bit for bit."""
    with opened(content) as file:
        header = describe(file, limits=LIMITS)
        assert header.entries.keys() == arrays.keys()
        for name, array in arrays.items():
            read = read_array(file, header.entry(name))
            assert (read.shape, read.dtype, read.tobytes()) == (array.shape, array.dtype, array.tobytes())


# -- wrong files -------------------------------------------------------------------------------------------------------


def mangled(rnd: random.Random) -> bytes:
    """A valid file whose fields, bytes, or both have been corrupted."""
    arrays = random_arrays(rnd)
    content = rnd.choice((mangled_safetensors, mangled_npy, mangled_npz))(arrays, rnd)
    while rnd.random() < 0.3:
        content = with_wrong_bytes(content, rnd)
    return content


def mangled_safetensors(arrays: Arrays, rnd: random.Random) -> bytes:
    """A safetensors file with strange values in its header."""
    content = as_safetensors(arrays, rnd)
    end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:end])
    for _ in range(rnd.randrange(3)):
        replace(header, rnd)
    return safetensors(header, content[end:])


def replace(fields: Any, rnd: random.Random) -> None:
    """Put a strange value into a field, or remove the field."""
    keys = list(fields) if isinstance(fields, dict) else list(range(len(fields)))
    if not keys:
        return
    key = rnd.choice(keys)
    if isinstance(fields[key], dict | list) and rnd.random() < 0.8:
        replace(fields[key], rnd)
    elif rnd.random() < 0.1:
        del fields[key]
    elif isinstance(fields, dict) and rnd.random() < 0.1:
        fields[str(rnd.choice(STRANGE))] = fields.pop(key)
    elif type(fields[key]) is int and rnd.random() < 0.5:
        fields[key] += rnd.choice((-8, -1, 1, 8))
    else:
        fields[key] = copy.deepcopy(rnd.choice(STRANGE))


def mangled_npy(arrays: Arrays, rnd: random.Random) -> bytes:
    """An .npy file with a strange header."""
    content = as_npy(next(iter(arrays.values()), np.zeros(3)), rnd)
    width = 2 if content[6] == 1 else 4
    end = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    text = content[8 + width : end].decode()
    for _ in range(rnd.randrange(3)):
        at, gone = rnd.randrange(len(text) + 1), rnd.choice((0, 0, 1, 3, 9))
        text = text[:at] + rnd.choice(SNIPPETS) + text[at + gone :]
    return npy_of(text, content[end:], content[6])


def mangled_npz(arrays: Arrays, rnd: random.Random) -> bytes:
    """An archive with strange members, or with numbers that are wrong consistently, wherever they occur."""
    if rnd.random() < 0.5:
        members = {f"{name}{rnd.choice(('.npy', '', '/'))}": mangled_npy({name: a}, rnd) for name, a in arrays.items()}
        return archive(members, rnd.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
    content = as_npz(arrays, rnd)
    at = content.find(b"PK\x01\x02")
    if at >= 0:
        local, member, width = rnd.choice(((4, 6, 2), (6, 8, 2), (8, 10, 2), (14, 16, 4), (18, 20, 4), (22, 24, 4)))
        number = (rnd.choice(NUMBERS) & (256**width - 1)).to_bytes(width, "little")
        for offset in (local, at + member):
            content = content[:offset] + number + content[offset + width :]
    return content


def with_wrong_bytes(content: bytes, rnd: random.Random) -> bytes:
    """The content with some bytes changed, removed, repeated, or replaced by numbers that have a meaning."""
    at = rnd.randrange(len(content) + 1)
    count = rnd.choice((1, 1, 2, 4, 8, 30))
    width = rnd.choice((1, 2, 4, 8))
    number = (rnd.choice(NUMBERS) & (256**width - 1)).to_bytes(width, "little")
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: content[:at] + rnd.randbytes(count) + content[at + count :],
        lambda: content[:at] + bytes(b ^ (1 << rnd.randrange(8)) for b in content[at : at + 1]) + content[at + 1 :],
        lambda: content[:at],
        lambda: content[:at] + content[at + count :],
        lambda: content[: at + count] + content[at:],
        lambda: content[:at] + number + content[at + width :],
        lambda: content[:at] + number + content[at:],
    )
    return rnd.choice(ways)()


# -- checks ------------------------------------------------------------------------------------------------------------


def check_any(content: bytes, *, raw: bool = False) -> None:
    """Check that any bytes are a file whose entries are within it, or one of tensord's own errors, and that this
    takes little memory."""
    with opened(content) as file:
        tracemalloc.start()
        try:
            header = describe(file, raw=raw, limits=LIMITS)
        except TensordError as error:
            check_error(error)
            return
        finally:
            memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert memory < MEMORY, f"describing {len(content)} bytes took {memory}"
        arrays = read_entries(file, header)
    if not raw and arrays is not None and len(arrays) == len(header.entries):
        check_reference(content, header.format, arrays)


def check_error(error: TensordError) -> None:
    """Check that the error is tensord's own, is about the file, and is short."""
    assert error.message.startswith("x.bin: "), error.message
    assert len(error.message) < LONGEST, "the message repeats what was in the file"
    assert error.message.isprintable(), error.message


def read_entries(file: TensorFile, header: FileHeader) -> Arrays | None:
    """The arrays of the file; None if one is damaged."""
    arrays: Arrays = {}
    for name, entry in header.entries.items():
        piece = entry.piece
        assert name == entry.name
        assert name.isprintable()
        assert len(name) <= LIMITS.name
        assert 0 <= piece.offset <= piece.offset + piece.length <= file.size
        assert (entry.meta is None) == bool(entry.error)
        if entry.meta is None:
            try:
                header.entry(name)
            except TensordError as error:
                check_error(error)
            continue
        assert entry.nbytes == entry.meta.nbytes
        if entry.nbytes > LARGEST:
            continue
        try:
            arrays[name] = read_array(file, entry)
            digest(file, entry)
        except FileError as error:
            check_error(error)
            return None
        if entry.is_direct:
            part = bytearray(entry.nbytes // 2)
            read_range(file, entry, part, entry.nbytes - len(part))
            assert arrays[name].tobytes().endswith(part)
    return arrays


def check_reference(content: bytes, kind: Format, arrays: Arrays) -> None:
    """Check that NumPy and safetensors read the same arrays."""
    if kind is Format.SAFETENSORS:
        theirs = dict(reference.load(content))
    else:
        try:
            loaded = np.load(io.BytesIO(content), allow_pickle=False)
            theirs = {name: loaded[name] for name in loaded.files} if kind is Format.NPZ else {"array": loaded}
        except (
            zipfile.BadZipFile,
            NotImplementedError,
        ):  # fields that we do not use, without meaning for the arrays
            return
    assert arrays.keys() == theirs.keys()
    for name, array in arrays.items():
        other = np.ascontiguousarray(theirs[name], theirs[name].dtype.newbyteorder("=")).reshape(theirs[name].shape)
        assert (array.shape, array.dtype, array.tobytes()) == (other.shape, other.dtype, other.tobytes())
