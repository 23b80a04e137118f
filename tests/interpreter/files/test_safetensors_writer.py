"""Written files equal those of the safetensors package, byte for byte, and are complete or absent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import numpy as reference

from tensord.interpreter.errors import FileError, MetadataError, QuotaError
from tensord.interpreter.files.describe import describe
from tensord.interpreter.files.header import FileLimits
from tensord.interpreter.files.safetensors_writer import SafetensorsWriter, header_of
from tensord.interpreter.files.values import read_array
from tensord.interpreter.types.meta import DTYPES, Meta

from ...full_disk import longest_file
from .sound_files import opened
from .test_durable_file import directory, names
from .test_safetensors import ARRAYS, NAMES

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
ONE = {"a": Meta.of((2,), "float32")}


@pytest.fixture
def folder(tmp_path):
    with directory(tmp_path) as fd:
        yield fd


def metas_of(arrays):
    return {name: Meta.of(array.shape, array.dtype) for name, array in arrays.items()}


def write(folder, arrays):
    with SafetensorsWriter(folder, "x", metas_of(arrays)) as writer:
        for entry in writer.entries:
            writer.write(arrays[entry.name])


@given(st.dictionaries(NAMES, ARRAYS, max_size=6), st.dictionaries(TEXTS, TEXTS, max_size=1), st.integers(1, 99))
def test_it_is_what_the_package_writes(tmp_path_factory, arrays, metadata, step):
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    path = tmp_path_factory.mktemp("files")
    with directory(path) as fd:
        with SafetensorsWriter(fd, "x.safetensors", metas_of(arrays), metadata) as writer:
            values = b"".join(arrays[entry.name].tobytes() for entry in writer.entries)
            for begin in range(0, len(values), step):
                writer.write(values[begin : begin + step])
        content = (path / "x.safetensors").read_bytes()
    assert content == reference.save(arrays, metadata or None)
    read = reference.load_file(path / "x.safetensors")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (read[name].shape, read[name].dtype, read[name].tobytes()) == (array.shape, array.dtype, array.tobytes())
    with opened(content) as file:
        header = describe(file)
        assert (tuple(header.entries.values()), header.metadata) == (writer.entries, metadata)


def test_each_tensor_is_aligned_to_its_elements():
    metas = {f"{n}": Meta.of((n % 3,), dtype) for n, dtype in enumerate([d for d in DTYPES if d != "complex128"] * 2)}
    _, entries = header_of(metas, {"some": "text"}, FileLimits())
    assert all(entry.offset % metas[entry.name].dtype.itemsize == 0 for entry in entries)


def test_arrays_of_any_dtype_are_written_as_they_are(tmp_path, folder):
    arrays = {
        "c": np.array([1 + 2j], np.complex64),
        "b": np.array([True]),
        "e": np.empty((0, 3)),
        "s": np.array(3, np.int8),
    }
    write(folder, arrays)
    with opened((tmp_path / "x").read_bytes()) as file:
        header = describe(file)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read_array(file, header.entry(name)), array)


@pytest.mark.parametrize(
    ("count", "text"), [(7, "x: 1 bytes of its tensors were not"), (9, "x: 1 more bytes than its")]
)
def test_values_of_another_size_are_refused_and_nothing_is_left(tmp_path, folder, count, text):
    with pytest.raises(MetadataError, match=text), SafetensorsWriter(folder, "x", ONE) as writer:
        writer.write(bytes(count))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("metas", "metadata", "limits", "error", "text"),
    [
        (
            {"a": Meta.of((), "complex128")},
            {},
            {},
            MetadataError,
            "'a': safetensors has no complex128; save two tensors",
        ),
        ({"__metadata__": ONE["a"]}, {}, {}, MetadataError, "cannot be called '__metadata__': the format keeps"),
        ({"a\n": ONE["a"]}, {}, {}, MetadataError, r"name is printable text .*, not 'a\\n'"),
        ({"": ONE["a"]}, {}, {}, MetadataError, "name is printable text .*, not ''"),
        ({"abc": ONE["a"]}, {}, {"name": 2}, MetadataError, "at most 2 characters, not 'abc'"),
        (ONE, {"a": 1}, {}, MetadataError, "metadata are texts by name"),
        (ONE, {"a": "\ud800"}, {}, MetadataError, "metadata of 'a' hold half a character"),
        ({"a": ONE["a"], "b": ONE["a"]}, {}, {"entries": 1}, QuotaError, "a file of 2 tensors; the limit is 1"),
        (ONE, {"a": "x" * 99}, {"header": 99}, QuotaError, "a header of .* bytes; the limit is 99"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, folder, metas, metadata, limits, error, text):
    with pytest.raises(error, match=text):
        SafetensorsWriter(folder, "x", metas, metadata, limits=FileLimits(**limits))
    assert names(tmp_path) == []


@pytest.mark.parametrize("room", [0, 1, 8, 50, 100, 200, 1000, 4100])
def test_a_disk_that_is_full_at_any_write_leaves_what_was_there(tmp_path, folder, room):
    (tmp_path / "x").write_text("before")
    arrays = {f"{n}": np.zeros(64) for n in range(8)}
    with longest_file(room), pytest.raises(FileError, match=r"^x: cannot be written: File too large"):
        write(folder, arrays)
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "before")
