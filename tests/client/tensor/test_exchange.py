"""Exchange with other libraries: DLPack both ways, and NumPy, which is told to ask for `.numpy()`."""

from __future__ import annotations

import ctypes
import enum
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.types.meta import DTYPES

from ...each_case import each_case
from ...puppet import Puppet

BIG = 1 << 18  # elements of 8 bytes: a daemon's result is mapped, not copied
CPU, CUDA = 1, 2  # DLPack's kinds of devices
DLDeviceType = enum.IntEnum("DLDeviceType", {"kDLCPU": 1})
IS_COPIED = 2  # DLPack's flag


def values(dtype: str) -> np.ndarray:
    """Values that matter, in a shape that is not square."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([[True, False, True], [False, False, True]])
    if kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([[limits.min, 0, 1], [limits.max, 2, 3]], dtype)
    reals = np.array([[0.0, -0.0, np.nan], [np.inf, -1.5, np.finfo(dtype).smallest_subnormal]], np.finfo(dtype).dtype)
    return reals if kind == "f" else np.stack([reals, reals[::-1, ::-1]], axis=-1).view(dtype)[..., 0]


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """The same dtype, shape, and values, signs of zeros included."""
    return (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


CUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "0-d": lambda x: x[1, 1, ...],
    "empty": lambda x: x[:0],
}


# -- to NumPy ----------------------------------------------------------------------------------------------------------


@each_case("dtype", DTYPES)
def test_numpy_takes_tensors_of_every_dtype_and_layout(session, dtype):
    whole = values(dtype)
    x = session.asarray(whole)
    for cut in CUTS.values():
        assert same(np.from_dlpack(cut(x)), cut(whole))


def test_what_was_handed_over_is_the_other_s_own(session):
    """Neither sees later writes of the other."""
    x = session.asarray([1.0, 2.0])
    array = np.from_dlpack(x)
    x += 10.0
    array[0] = 5.0
    assert array.tolist() == [5.0, 2.0]
    assert x.numpy().tolist() == [11.0, 12.0]


def test_a_tensor_says_that_it_is_on_the_host_wherever_it_is(sim_session):
    x = sim_session.asarray([1.0, 2.0], device="sim:0")
    assert x.__dlpack_device__() == (CPU, 0)
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]


def test_the_consumer_may_ask_for_the_host_and_for_nothing_else(session):
    x = session.asarray([1.0, 2.0])
    assert "dltensor" in repr(x.__dlpack__(dl_device=(CPU, 0)))
    assert "dltensor" in repr(x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0)))
    for other in ((CUDA, 0), (CPU, 1)):
        with pytest.raises(BufferError, match=r"ask for the device \(1, 0\)"):
            x.__dlpack__(dl_device=other)
    for stream in (1, 0, -1):
        with pytest.raises(BufferError, match="has no streams"):
            x.__dlpack__(stream=stream)


@each_case("copy", [None, True])
@each_case(
    ("version", "capsule"),
    [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"), ((2, 3), "dltensor_versioned")],
)
def test_a_consumer_of_any_version_gets_a_capsule_that_it_knows(session, version, capsule, copy):
    x = session.asarray([1.0, 2.0])
    assert f'"{capsule}"' in repr(x.__dlpack__(max_version=version, copy=copy))


@each_case(("copy", "says_so"), [(True, True), (None, False)])
def test_a_copy_that_was_asked_for_says_that_it_is_one(session, copy, says_so):
    capsule = session.asarray([1.0, 2.0]).__dlpack__(max_version=(1, 0), copy=copy)
    assert bool(flags_of(capsule) & IS_COPIED) == says_so


def flags_of(capsule: Any) -> int:
    """The flags of the tensor in a versioned capsule: behind its version, its context and its deleter."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.c_uint64.from_address(pointer_of(capsule, b"dltensor_versioned") + 24).value


def test_numpy_s_own_options_work(session):
    x = session.asarray([1.0, 2.0])
    for options in ({"device": "cpu"}, {"copy": True}, {"copy": None}, {"device": "cpu", "copy": True}):
        assert np.from_dlpack(x, **options).tolist() == [1.0, 2.0]


@each_case(("device", "why"), [("cpu:0", "was copied from there"), ("sim:0", "the tensor is on sim:0")])
def test_a_value_that_has_to_be_copied_is_not_handed_over_without_a_copy(sim_session, device, why):
    x = sim_session.asarray([1.0, 2.0], device=device)
    with pytest.raises(BufferError, match=f"{why}.*: allow a copy"):
        np.from_dlpack(x, copy=False)


@each_case(
    "options",
    [
        *({"dl_device": wrong} for wrong in ("cpu", (1,), (1, 0, 0), 5, (1, "0"))),
        *({"max_version": wrong} for wrong in ("1.0", (1,), 5, (1, "a"))),
        {"copy": "no"},
        {"copy": 1},
        {"copy": []},
    ],
    ids=str,
)
def test_arguments_that_dlpack_does_not_know_are_refused(session, options):
    x = session.asarray([1.0, 2.0])
    with pytest.raises(TypeError, match=rf"__dlpack__: {next(iter(options))} must be "):
        x.__dlpack__(**options)


@each_case("function", ["asarray", "from_dlpack", "astype", "reshape"])
def test_copy_is_a_bool_or_none(session, function):
    x = session.asarray([1.0, 2.0])
    more = {"astype": (np.float64,), "reshape": ((2,),)}.get(function, ())
    wrongs: list[object] = ["no", 1, []]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="copy"):
            getattr(session.xp, function)(x, *more, copy=wrong)


def test_masked_elements_are_not_taken_for_values(session):
    masked = np.ma.masked_greater(np.arange(3.0), 1)
    with pytest.raises(TypeError, match=r"some elements are masked.*filled"):
        session.asarray(masked)
    assert session.asarray(masked.filled(-1)).tolist() == [0.0, 1.0, -1.0]
    assert session.asarray(np.ma.masked_greater(np.arange(3.0), 5)).tolist() == [0.0, 1.0, 2.0]


def test_handing_over_waits_and_raises_what_went_wrong(session):
    pending = session.xp.unique_values(session.asarray([3, 1, 3]))
    assert np.from_dlpack(pending).tolist() == [1, 3]
    poisoned = session.xp.take(session.asarray([2, 3]), session.asarray([1, 2]))
    with pytest.raises(td.KernelError, match="out of bounds"):
        np.from_dlpack(poisoned)


@each_case("ask", [np.asarray, np.array, np.ascontiguousarray, np.atleast_1d, np.sum, np.sin, float])
def test_numpy_does_not_wait_behind_anybody_s_back(session, ask):
    """The error says how to convert."""
    x = session.asarray([1.0, 2.0])
    with pytest.raises(TypeError, match=r"\.numpy\(\), which waits|elements?, not of shape"):
        ask(x)
    with pytest.raises(TypeError, match=r"call \.numpy\(\), which waits for its value"):
        np.asarray(x, dtype=np.float32, copy=True)


@each_case("name", ["nanmean", "nanstd", "nanmedian", "nancumsum", "sin"])
def test_what_xarray_calls_of_numpy_refuses_tensors_and_says_what_to_do(session, name):
    """Decision 0010."""
    with pytest.raises(TypeError, match=rf"numpy\.{name} does not take tensors: use session\.xp.*\.numpy\(\)"):
        getattr(np, name)(session.asarray([1.0, 2.0]))


def test_numpy_may_ask_what_needs_no_value(session):
    x = session.asarray([[1j, 2.0, 3.0]])
    assert (np.ndim(x), np.shape(x), np.size(x), np.size(x, axis=1)) == (2, (1, 3), 3, 3)
    assert np.iscomplexobj(x)
    assert not np.isrealobj(x)


# -- large results of a daemon, which are mapped -----------------------------------------------------------------------


def test_a_mapped_result_is_copied_for_whom_it_is_handed_to(daemon):
    """Some libraries write to read-only memory: here that would end the process."""
    with daemon.connect() as session:
        x = session.asarray(np.arange(float(BIG))) + 1.0
        assert not x.numpy().flags.writeable
        array = np.from_dlpack(x)
        array[:] = 0.0
        assert x[-1].item() == BIG
        assert x.__dlpack__() is not None


def test_without_a_copy_a_mapped_result_is_handed_over_read_only_or_not_at_all(daemon):
    with daemon.connect() as session:
        x = session.asarray(np.arange(float(BIG))) + 1.0
        with pytest.raises(BufferError, match=r"read-only, which DLPack before 1\.0 cannot say"):
            x.__dlpack__(copy=False)
        with pytest.raises(BufferError, match="the tensor is on sim:0"):
            np.from_dlpack(x.to_device("sim:0"), copy=False)
        array = np.from_dlpack(x, copy=False)
        assert not array.flags.writeable
        x += 1.0
        del x
    gc.collect()
    assert array[-1] == BIG  # the memory stays as long as an array refers to it


# -- from NumPy --------------------------------------------------------------------------------------------------------


@each_case("dtype", DTYPES)
def test_a_tensor_of_numpy_s_memory_of_every_dtype_and_layout(session, dtype):
    whole = values(dtype)
    frozen = whole.copy()
    frozen.flags.writeable = False
    spread = np.broadcast_to(whole[0], (2, 3))
    assert same(session.xp.from_dlpack(spread).numpy(), spread)
    for cut in CUTS.values():
        for source in (whole, frozen, np.asfortranarray(whole)):
            assert same(session.xp.from_dlpack(cut(source)).numpy(), cut(source))


def test_what_comes_in_is_copied_to_the_device_asked_for(sim_session):
    xp = sim_session.xp
    array = np.arange(3.0)
    x, y = xp.from_dlpack(array), xp.from_dlpack(array, device="sim:0", copy=True)
    array[:] = 0.0
    assert (x.device, y.device) == ("cpu:0", "sim:0")
    assert x.numpy().tolist() == y.numpy().tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(BufferError, match="without a copy"):
        xp.from_dlpack(array, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        xp.asarray(array, copy=False)
    with pytest.raises(td.MetadataError, match="unknown device 'cuda:7'"):
        xp.from_dlpack(array, device="cuda:7")


def test_a_tensor_of_the_session_is_taken_as_it_is(sim_session):
    xp = sim_session.xp
    x = xp.asarray([1.0, 2.0])
    assert xp.from_dlpack(x) is x
    assert xp.from_dlpack(x, copy=False) is x
    copied, moved = xp.from_dlpack(x, copy=True), xp.from_dlpack(x, device="sim:0")
    assert copied is not x
    assert (moved.device, moved.numpy().tolist()) == ("sim:0", [1.0, 2.0])
    with pytest.raises(BufferError, match="copy"):
        xp.from_dlpack(x, device="sim:0", copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(x, device="sim:0", copy=False)


def test_a_tensor_of_another_session_goes_through_the_host(session, make_session):
    x = make_session().asarray([1.0, 2.0])
    assert session.xp.from_dlpack(x).numpy().tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match="without a copy"):
        session.xp.from_dlpack(x, copy=False)


@each_case(
    "array",
    [
        np.array(["a"]),
        np.zeros(2, ">f8"),
        np.zeros(2, "i4,f4"),
        np.array([None]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "g"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_dlpack_does_not_know_is_refused(session, array):
    with pytest.raises(BufferError):
        session.xp.from_dlpack(array)


@each_case("thing", [[1.0], 1.0, memoryview(b"ab"), None])
def test_what_does_not_speak_dlpack_is_refused(session, thing):
    with pytest.raises(AttributeError, match="__dlpack"):
        session.xp.from_dlpack(thing)


# -- exporters of other kinds ------------------------------------------------------------------------------------------


class Exporter:
    """An array on some device. It notes the calls of its protocol."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (CPU, 0)) -> None:
        self.array = array
        self.device = device
        self.asked: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        wanted = options.get("dl_device") or self.device
        if wanted[0] != CPU:
            raise BufferError("this memory is on the GPU")
        return self.array.__dlpack__()


class OldExporter(Exporter):
    """An exporter from before DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]  # it is old: it takes nothing else
        return super().__dlpack__(**({} if stream is None else {"stream": stream}))


class CuPyArray(Exporter):
    def get(self) -> np.ndarray:
        return self.array


class TorchTensor(Exporter):
    def cpu(self) -> Exporter:
        return OldExporter(self.array)


@each_case(
    "exporter",
    [
        Exporter(np.arange(3.0)),
        OldExporter(np.arange(3.0)),
        Exporter(np.arange(3.0), (DLDeviceType.kDLCPU, 0)),
        CuPyArray(np.arange(3.0), (CUDA, 0)),
        TorchTensor(np.arange(3.0), (CUDA, 1)),
        Exporter(np.arange(3.0), (CUDA, 0)),
    ],
    ids=["host", "old", "enum", "cupy", "torch", "dlpack 1"],
)
def test_arrays_of_other_libraries_come_by_the_way_that_they_know(session, exporter):
    assert session.xp.from_dlpack(exporter).numpy().tolist() == [0.0, 1.0, 2.0]
    assert all("stream" not in options or options["stream"] is None for options in exporter.asked)


def test_what_an_exporter_says_is_passed_on(session):
    class Lazy(Exporter):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("call .detach() first")

    with pytest.raises(BufferError, match=r"call \.detach\(\) first"):
        session.xp.from_dlpack(Lazy(np.arange(3.0)))


# -- PyTorch -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, if it is installed."""
    return pytest.importorskip("torch")


@each_case("dtype", DTYPES)
def test_torch_and_a_session_exchange_every_dtype(session, torch, dtype):
    whole = values(dtype)
    x = session.asarray(whole)
    for cut in (cut for name, cut in CUTS.items() if name != "backwards"):
        there = torch.from_dlpack(cut(x))
        assert str(there.dtype) == f"torch.{dtype}"
        assert same(session.xp.from_dlpack(there).numpy(), cut(whole))
        assert same(session.xp.from_dlpack(cut(torch.from_dlpack(x))).numpy(), cut(whole))
    assert same(session.xp.asarray(torch.from_dlpack(x)).numpy(), whole)


def test_torch_s_own_options_work(session, torch):
    x = session.asarray([1.0, 2.0])
    for take in (torch.from_dlpack, torch.asarray, torch.as_tensor, torch.tensor):
        assert take(x).tolist() == [1.0, 2.0]
    for options in ({"copy": True}, {"copy": None}, {"device": "cpu"}):
        assert torch.from_dlpack(x, **options).tolist() == [1.0, 2.0]
    with pytest.raises(BufferError, match="allow a copy"):
        torch.from_dlpack(x, copy=False)


def test_what_torch_cannot_hand_over_is_refused(session, torch):
    for there in (
        torch.ones(2, requires_grad=True),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2).to_sparse(),
    ):
        with pytest.raises(BufferError):
            session.xp.from_dlpack(there)


@pytest.mark.usefixtures("torch")
def test_torch_may_write_to_a_large_result(daemon):
    with Puppet.start(daemon.address) as puppet:
        puppet.do(f"import torch\nx = s.asarray(np.arange({BIG}.0)) + 1.0\ny = torch.from_dlpack(x)\ny[:] = 0.0")
        assert puppet.do("x[-1].item(), float(y[-1])") == [BIG, 0.0]


def test_a_tensor_that_is_on_no_gpu_is_no_array_of_cupys_with_cupy_or_without(session: td.Session) -> None:
    x = session.asarray(np.ones(3))
    with pytest.raises(td.MetadataError, match=rf"the tensor is on {x.device}, whose memory cannot be read here"):
        x.cupy()
