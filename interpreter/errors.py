"""The errors of the public surface. Each one says what failed, in which op, at which line of the user's code.

One failed instruction makes one error object; everything that depends on it carries the same object. A stored error
must not refer to frames: a traceback keeps the locals of every frame that it went through alive, and grows each time
the same object is raised. So

- an error is stored without tracebacks (`without_frames`); of an error that is being raised, a copy is stored (`kept`);
- a stored error is never raised itself, but a new copy of it (`reraisable`).
"""

from __future__ import annotations

from typing import Final, Self, TypeVar

# The names for this error of CUDA's runtime, its driver and its libraries (cuBLAS, cuSOLVER, cuFFT, cuRAND).
OUT_OF_MEMORY: Final = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "ALLOC_FAILED", "ALLOCATION_FAILED")


class TensordError(Exception):
    """Base of every error raised by tensord.

    `op`: the operation's name; `location`: the user's line ("file:line in function") that issued it; `instruction`: the
    id of the instruction. Each is None if there is none.
    """

    is_reported = False  # whether a client was told of it

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        location: str | None = None,
        instruction: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.op = op
        self.location = location
        self.instruction = instruction

    def __str__(self) -> str:
        where = f" [{self.location}]" if self.location else ""
        return f"{self.message}{where}"

    def reraisable(self) -> Self:
        """A copy without traceback, for raising at one of several waits."""
        copy = type(self)(self.message, op=self.op, location=self.location, instruction=self.instruction)
        copy.__cause__ = self.__cause__
        return copy

    def kept(self) -> Self:
        """A copy to be stored while this error is raised."""
        return without_frames(self.reraisable())


Failure = TypeVar("Failure", bound=BaseException)


def without_frames(error: Failure) -> Failure:
    """The same error, prepared for storing: it and its causes lose their tracebacks, and the exceptions during which
    they were raised.

    The latter may be exceptions of the user's, whose tracebacks must not be removed.
    """
    cleared: set[int] = set()  # causes may form circles
    cause: BaseException | None = error
    while cause is not None and id(cause) not in cleared:
        cleared.add(id(cause))
        cause.__traceback__ = cause.__context__ = None
        cause = cause.__cause__
    return error


class MetadataError(TensordError, ValueError):
    """Shapes, dtypes, attributes or devices do not fit the op. Raised at the call, before anything is sent."""


class MetadataTypeError(MetadataError, TypeError):
    """Operands or attributes of a kind that the op does not accept."""


class MetadataIndexError(MetadataError, IndexError):
    """An index or an axis out of the tensor's bounds."""


class MetadataKeyError(MetadataError, KeyError):
    """A name that denotes nothing."""


class MetadataOverflowError(MetadataError, OverflowError):
    """A Python number that the dtype cannot hold."""


class MetadataBufferError(MetadataError, BufferError):
    """Values that cannot be exported or imported as DLPack was asked to."""


class MetadataAttributeError(MetadataError, AttributeError):
    """An object without the methods of a protocol, such as DLPack, by which its values are read."""


KINDS = (
    MetadataTypeError,
    MetadataIndexError,
    MetadataOverflowError,
    MetadataBufferError,
    MetadataAttributeError,
)


def metadata_error(cause: Exception, message: str, op: str | None) -> MetadataError:
    """A MetadataError that is also of the cause's type, so that handlers of NumPy's errors catch it."""
    for kind in KINDS:
        if isinstance(cause, kind.__bases__[1]):
            return kind(message, op=op)
    return MetadataError(message, op=op)


class KernelError(TensordError):
    """A kernel, a callback or a transfer raised while it ran."""


class KernelValueError(KernelError, ValueError):
    """The op does not accept these data: a singular matrix, a negative count."""


class KernelIndexError(KernelError, IndexError):
    """An index among the data is out of bounds."""


def is_out_of_memory(cause: BaseException) -> bool:
    """Return whether a kernel lacked memory. CUDA's libraries report this in RuntimeErrors of their own."""
    if isinstance(cause, RuntimeError):
        text = text_of(cause)
        return any(name in text for name in OUT_OF_MEMORY)
    return isinstance(cause, MemoryError)


def kernel_error(
    cause: BaseException, message: str, *, op: str, location: str | None, instruction: int | None = None
) -> TensordError:
    """A KernelError that is also of the cause's type, so that handlers of NumPy's errors catch it.

    A kernel without memory for its temporaries fails with a DeviceMemoryError, like one without memory for its result.
    """
    if is_out_of_memory(cause):
        message = f"{message}; release tensors, or use smaller ones"
        return DeviceMemoryError(message, op=op, location=location, instruction=instruction)
    kinds = (kind for kind in (KernelValueError, KernelIndexError) if isinstance(cause, kind.__bases__[1]))
    return next(kinds, KernelError)(message, op=op, location=location, instruction=instruction)


def text_of(error: BaseException) -> str:
    """`str(error)` of an exception that user code raised, and whose `__str__` may raise, too."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be made: {type(failure).__name__})"


class CaptureError(TensordError):
    """A function that is captured as a routine asks for a value, or does something else that a program cannot
    contain."""


class CancelledError(TensordError):
    """The session was cancelled before the instruction ran."""


class DeviceMemoryError(TensordError, MemoryError):
    """The device's memory cannot hold the result, even after all earlier instructions have finished."""


class ConnectionLost(TensordError, ConnectionError):  # noqa: N818 - named for the event, in the field's terms
    """The session is closed, or the virtual machine behind it is gone."""


class NodeLost(ConnectionLost):
    """Another node, or the connection to it, is gone; the message names the node (`node_lost`)."""


def node_lost(node: str, why: str) -> NodeLost:
    """The error of an operation that needs a lost node."""
    return NodeLost(f"node {node} is lost: {why}")


class NoDaemon(ConnectionLost):
    """No daemon listens at an address so far."""


class FileError(TensordError, OSError):
    """A file cannot be read or written, is damaged, or has changed since it was described."""


class ProtocolError(TensordError):
    """A message, an id or a file violates the protocol."""


class QuotaError(TensordError):
    """The session exceeds one of its limits."""
