"""Values that are read where they lie, as arrays of CuPy.

Each view of such an array keeps its memory alive, as CuPy's arrays do, and the memory keeps its `Loan`. When that is
gone, the value is given back (`returns`). Memory of a machine in this process outlives its session: the loan keeps it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

from ...interpreter.errors import KernelError, MetadataBufferError, MetadataError
from ...interpreter.wire.messages import Share
from ..locations.locations import located
from ..outbox.outbox import Outbox
from .cuda import NO_CUPY, cupy, synchronize
from .returns import RETURNS

CUDA = 2  # kDLCUDA
CPU = (1, 0)  # kDLCPU, device 0
Place: TypeAlias = tuple[int, int]  # as DLPack has it: a kind of device, and its number


class Loan:
    """What a borrowed array's memory belongs to. `array`: the machine's, in this process."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array


def place_of(outbox: Outbox, device: str) -> Place:
    """Where the values of a device of the machine are handed over to other libraries."""
    number = outbox.transport.gpu(device)
    return CPU if number is None or cupy() is None else (CUDA, number)


def lent(outbox: Outbox, id_: int, device: str) -> Any:
    """An array over the value of a tensor with its home on that device. What this thread launches on CuPy's current
    stream from now on finds the value there."""
    return over(outbox, *borrowed(outbox, id_, device))


def borrowed(outbox: Outbox, id_: int, device: str) -> tuple[int, Any, Any, int]:
    """The value's id, its array, an event behind which it is there, or None, and the number of its GPU."""
    number = outbox.transport.gpu(device)
    if number is None:
        hint = "numpy() gives its value on the host"
        raise located(MetadataError(f"cupy: the tensor is on {device}, whose memory cannot be read here: {hint}"))
    if cupy() is None:
        raise located(MetadataError(f"cupy: {NO_CUPY}; numpy() gives the value on the host"))
    ids: list[int] = []

    def build(request: int, location: int) -> Share:
        ids.append(outbox.new_id())
        return Share(id_, request, location, ids[0])

    try:
        array, event = outbox.await_reply(outbox.ask(build))
    except BaseException:
        for export in ids:
            outbox.release(export)
        raise
    return ids[0], array, event, number


def over(outbox: Outbox, export: int, array: Any, event: Any, number: int) -> Any:
    """An array of its own over borrowed memory; CuPy's current stream waits for the event.

    KernelError if the device turns out to be lost.
    """
    cuda = cupy().cuda
    with cuda.Device(number):
        try:
            if event is not None:
                cuda.get_current_stream().wait_event(event)
        except cuda.runtime.CUDARuntimeError as error:
            outbox.release(export)
            raise located(KernelError(f"cupy: the device is lost: {error}", op="cupy")) from None
        loan = Loan(array)
        RETURNS.watch(loan, partial(give_back, outbox, export, array, number))
        if not array.size:
            return cupy().empty(array.shape, array.dtype)
        memory = cuda.UnownedMemory(array.data.ptr, extent(array), loan, number)
        return cupy().ndarray(array.shape, array.dtype, cuda.MemoryPointer(memory, 0), array.strides)


def extent(array: Any) -> int:
    """Bytes from the first element of an array to the end of its last one."""
    return int(sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) + array.itemsize)


def give_back(outbox: Outbox, export: int, _array: Any, number: int) -> None:
    """The arrays over a value are gone; its memory is kept until the device has done what reads it."""
    synchronize(number)
    outbox.release(export)
    outbox.rouse()


def capsule(outbox: Outbox, id_: int, device: str, stream: Any, options: dict[str, Any]) -> Any:
    """DLPack's capsule over a value, which the consumer's stream finds there.

    Source: DLPack's `__dlpack__`: None and 1 are the legacy default stream, 2 that of each thread; with -1 the consumer
    waits for nothing, so the host does.
    """
    if stream is not None and (type(stream) is not int or stream < -1):
        raise located(MetadataBufferError("__dlpack__: stream is None or the number of one", op="__dlpack__"))
    export, array, event, number = borrowed(outbox, id_, device)
    cuda = cupy().cuda
    with cuda.Device(number):
        named = {None: cuda.Stream.null, -1: cuda.Stream.null, 0: cuda.Stream.null, 1: cuda.Stream.null}
        with named.get(stream) or (cuda.Stream.ptds if stream == 2 else cuda.ExternalStream(stream, number)) as current:
            found = over(outbox, export, array, event, number)
            if stream == -1:
                current.synchronize()
            return found.__dlpack__(stream=stream, **options)
