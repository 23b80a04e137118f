"""Values of tensors that are read in place, as CuPy arrays.

Each view of such an array keeps its memory alive, as with any CuPy array, and the memory keeps its `MemoryOwner`. When
the owner is gone, the value is given back (`returns`). The memory outlives the session: in this process the owner keeps
it alive; a daemon keeps its memory until this process has released it or ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from ...interpreter.errors import KernelError, MetadataBufferError, MetadataError
from ...interpreter.types.device_names import kind_of
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Share
from ..locations.locations import located
from ..outbox.outbox import Outbox
from .blocks import OPEN_BLOCKS, OpenBlock
from .cuda import NO_CUPY, cupy, synchronize
from .returns import RETURNS

CUDA = 2  # kDLCUDA
CPU = (1, 0)  # kDLCPU, device 0
DLPackDevice: TypeAlias = tuple[int, int]  # as in DLPack: a kind of device, and its number
INSTEAD = "numpy() gives the value on the host"


class MemoryOwner:
    """The owner of a borrowed array's memory. `keeps`: the array or block with that memory."""

    __slots__ = ("__weakref__", "keeps")

    def __init__(self, keeps: Any) -> None:
        self.keeps = keeps


class Borrowed(NamedTuple):
    """A borrowed value: its id, and its address on GPU `number`. The value is complete once the event, if any, has
    passed. `keeps`: the array or block that keeps the memory alive; `close` releases the block."""

    export: int
    number: int
    address: int
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...] | None
    event: Any
    keeps: Any
    close: Callable[[], None]


def dlpack_device_of(outbox: Outbox, device: str) -> DLPackDevice:
    """The device, in DLPack's terms, on which values of a device of the machine are shared with other libraries."""
    number = outbox.transport.memory.gpu(device)
    return CPU if number is None or cupy() is None else (CUDA, number)


def lent(outbox: Outbox, id_: int, device: str) -> Any:
    """An array over the value of a tensor whose home is that device. Kernels that this thread later launches on CuPy's
    current stream see the complete value."""
    return array_over(outbox, borrow(outbox, id_, device))


def borrow(outbox: Outbox, id_: int, device: str) -> Borrowed:
    """Borrow the value; waits for the machine's answer."""
    number = outbox.transport.memory.gpu(device)
    if number is None:
        lacking = kind_of(device) == "cuda" and cupy() is None
        refuse(NO_CUPY if lacking else f"the tensor is on {device}, whose memory cannot be read here")
    ids: list[int] = []

    def build(request: int, location: int) -> Share:
        ids.append(outbox.new_id())
        return Share(id_, request, location, ids[0])

    try:
        answer = outbox.answered(build)
        return in_process(ids[0], number, *answer) if len(answer) == 2 else from_daemon(outbox, ids[0], number, answer)
    except BaseException:
        for export in ids:
            outbox.release(export)
        raise


def in_process(export: int, number: int, array: Any, event: Any) -> Borrowed:
    """A value in the memory of a machine in this process."""
    address = array.data.ptr if array.size else 0
    return Borrowed(export, number, address, array.shape, array.dtype, array.strides, event, array, lambda: None)


def from_daemon(outbox: Outbox, export: int, number: int, answer: Any) -> Borrowed:
    """A value in a block of a daemon, which is opened. MetadataError if it cannot be opened."""
    block_number, handle, _, dtype, shape = answer
    try:
        block = OPEN_BLOCKS.open((outbox.transport.memory.pid, block_number), handle, number)
    except cupy().cuda.runtime.CUDARuntimeError as error:
        outbox.transport.memory.give_up_gpus()
        refuse(f"the daemon's memory cannot be opened in this process, perhaps in a container of its own ({error})")
    return Borrowed(export, number, block.address, tuple(shape), dtype, None, None, block, partial(close_block, block))


def close_block(block: OpenBlock) -> None:
    """Release a block. An error means a lost device, on which nothing is open any more."""
    with suppress(cupy().cuda.runtime.CUDARuntimeError):
        OPEN_BLOCKS.let_go(block)


def refuse(why: str) -> NoReturn:
    raise located(MetadataError(f"cupy: {why}; {INSTEAD}", op="cupy"))


def array_over(outbox: Outbox, value: Borrowed, *, releases: bool = True) -> Any:
    """A new array over a borrowed value; CuPy's current stream waits for the event.

    KernelError if the device turns out to be lost. `releases`: the value is released when the array is gone.
    """
    cuda = cupy().cuda
    with cuda.Device(value.number):
        try:
            if value.event is not None:
                cuda.get_current_stream().wait_event(value.event)
        except cuda.runtime.CUDARuntimeError as error:
            outbox.release(value.export)
            raise located(KernelError(f"cupy: the device is lost: {error}", op="cupy")) from None
        owner = MemoryOwner(value.keeps)
        RETURNS.watch(owner, partial(give_back, outbox, value, releases=releases))
        if 0 in value.shape:
            return cupy().empty(value.shape, value.dtype)
        before, extent = extent_of(value)
        memory = cuda.UnownedMemory(value.address - before, extent, owner, value.number)
        return cupy().ndarray(value.shape, value.dtype, cuda.MemoryPointer(memory, before), value.strides)


def extent_of(value: Borrowed) -> tuple[int, int]:
    """The bytes of a value before its first element, and in total: strides may be negative."""
    meta = Meta.of(value.shape, np.dtype(value.dtype))
    steps = [(n - 1) * step for n, step in zip(value.shape, value.strides or meta.strides, strict=True)]
    before = -sum(step for step in steps if step < 0)
    return before, before + sum(step for step in steps if step > 0) + meta.dtype.itemsize


def give_back(outbox: Outbox, value: Borrowed, *, releases: bool) -> None:
    """Give a value back after its arrays are gone. Its memory is kept until the device has finished reading it."""
    synchronize(value.number)
    value.close()
    if releases:
        outbox.release(value.export)
        outbox.rouse()


def capsule(outbox: Outbox, id_: int, device: str, stream: Any, options: dict[str, Any]) -> Any:
    """DLPack's capsule over a value, which is complete on the consumer's stream.

    Source: DLPack's `__dlpack__`: None and 1 are the legacy default stream, 2 that of each thread; with -1 the consumer
    does not wait, so the host does.
    """
    if stream is not None and (type(stream) is not int or stream < -1):
        raise located(MetadataBufferError("__dlpack__: stream must be None or the number of a stream", op="__dlpack__"))
    value = borrow(outbox, id_, device)
    cuda = cupy().cuda
    with cuda.Device(value.number):
        named = dict.fromkeys((None, -1, 0, 1), cuda.Stream.null)
        consumers = named.get(stream) or (
            cuda.Stream.ptds if stream == 2 else cuda.ExternalStream(stream, value.number)
        )
        with consumers:
            array = array_over(outbox, value)
            if stream == -1:
                consumers.synchronize()
            return array.__dlpack__(stream=stream, **options)
