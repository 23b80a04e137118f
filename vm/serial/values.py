"""The serial engine's values, tensors, signatures and sessions, and the execution of an op on plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import (
    DeviceMemoryError,
    ProtocolError,
    TensordError,
    kernel_error,
    text_of,
    without_frames,
)
from ...interpreter.programs.program import Program
from ...interpreter.programs.records import RecordsReader
from ...interpreter.schema.infer import check_targets, infer_once
from ...interpreter.schema.opdef import FrozenAttributes, OpDef, OutputMetas
from ...interpreter.schema.promotion import check_scalars
from ...interpreter.types.meta import Meta, OperandMeta
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.metas import decode_meta
from ..model.linked import SessionProgram
from ..model.session import PRIVATE, ReplySink
from ..model.session_counts import SessionCounts
from ..model.session_files import SessionFiles
from ..model.texts import SourceTexts

CANCELLED = "the session was cancelled"
CLOSED = "the session was closed"

Host: TypeAlias = NDArray[Any]
Errors: TypeAlias = tuple[TensordError, ...]


class Value:
    """A tensor's value, the state of a chain, or an answer: an `array`, or None and `errors` in its place."""

    __slots__ = ("array", "errors")

    def __init__(self, array: Any, errors: Errors = ()) -> None:
        self.array = array
        self.errors = errors

    def add(self, error: TensordError) -> None:
        self.errors = (*self.errors, error)

    @property
    def first(self) -> TensordError:
        """The first error in program order."""
        return min(self.errors, key=lambda error: error.instruction or 0)


class SerialTensor:
    """The tensor behind a handle. `holders` counts handles and names.

    `meta` is None if it was never known. `meta_pending`: the client did not know the meta at the call; then
    `meta_errors` may keep it unknown for good. A meta is set only once, so a later write cannot repair such a
    tensor. `strides`: if the tensor is a view on the virtual machine, the view's strides; None if it is packed.
    Arrays here are packed; only ops that must not copy use the strides.
    """

    __slots__ = ("holders", "home", "meta", "meta_errors", "meta_pending", "strides", "value")

    def __init__(self, value: Value, meta: Meta | None, home: str) -> None:
        self.value = value
        self.meta = meta
        self.home = home
        self.holders = 1
        self.meta_pending = False
        self.strides: tuple[int, ...] | None = None
        self.meta_errors: Errors = ()


class SerialSignature:
    """An op with attributes, the metas of its operands as far as they are known, a device, and the metas of `out=`."""

    def __init__(
        self,
        op: OpDef,
        attributes: FrozenAttributes,
        metas: tuple[OperandMeta | None, ...],
        device: str,
        targets: OutputMetas | None,
    ) -> None:
        self.op = op
        self.attributes = attributes
        self.device = device
        self.in_place = targets is not None
        self.pending = None in metas
        self.scalars = tuple(isinstance(meta, type) for meta in metas)
        self.outputs = check_targets(op, infer_once(op, metas, attributes), targets)


class SerialSession:
    """The state of one client: ids, signatures, locations, cancellation."""

    def __init__(self, id_: int, reply: ReplySink) -> None:
        self.id = id_
        self.name = ""
        self.reply = reply
        self.tensors: dict[int, SerialTensor] = {}
        self.chains: dict[int, Value] = {}
        self.signatures: dict[int, SerialSignature | TensordError] = {}
        self.files: SessionFiles[Value] = SessionFiles()
        self.newest = 0
        self.generation = 0
        self.cancelled: TensordError | None = None
        self.counts = SessionCounts()
        self.limits = Limits()
        self.source = SourceTexts(self.limits.location_bytes)
        self.programs: dict[int, Program | RecordsReader | TensordError] = {}
        self.routines: dict[int, SessionProgram | TensordError] = {}
        self.steps = 0  # the number of steps in all programs and routines
        self.signed = PRIVATE  # the newest number of a signature that a run has registered

    def answer(self, request: int, value: Value) -> None:
        """Reply with the value, or with the first of its errors."""
        self.reply(request, value.array, None if value.array is not None else value.first)


def infer(signature: SerialSignature, operands: Sequence[Any], targets: Sequence[SerialTensor]) -> OutputMetas:
    """Infer the metas of the results from the operands' current metas. MetadataError if these do not match."""
    metas = tuple(o.meta if isinstance(o, SerialTensor) else type(o) for o in operands)
    wanted = tuple(target.meta for target in targets) if signature.in_place else None
    if signature.pending:  # otherwise the client has checked the scalars
        check_scalars(signature.op.name, operands, metas, dict(signature.attributes))
    return check_targets(signature.op, infer_once(signature.op, metas, signature.attributes), wanted)


def compute(signature: SerialSignature, operands: Sequence[Any], metas: OutputMetas) -> Sequence[Any]:
    """Run the op's kernel. Returns arrays, with an exception in place of each result that failed alone. May raise."""
    op, attributes = signature.op, signature.attributes
    inputs = [o.value.array if isinstance(o, SerialTensor) else o for o in operands]
    results = [np.empty(meta.shape, meta.dtype) for meta in metas if meta is not None]
    returned = op.bind(np, len(inputs), dict(attributes))(*inputs, *results)
    if op.dynamic:
        return [made if isinstance(made, BaseException) else np.array(made, order="C") for made in returned]
    failures = returned if isinstance(returned, (list, tuple)) else [None] * len(results)
    return [f if isinstance(f, BaseException) else made for f, made in zip(failures, results, strict=True)]


def strides_of(signature: SerialSignature, operands: Sequence[Any]) -> tuple[int, ...] | None:
    """The strides of a view; None for other results. ValueError if a copy would be needed but is forbidden."""
    view = signature.op.view
    if view is None or signature.pending or signature.in_place:
        return None
    base, output = operands[0], signature.outputs[0]
    if base.meta is None or output is None:
        return None
    layout = view(base.meta, (0, base.strides or base.meta.strides), output, dict(signature.attributes))
    return None if layout is None else layout[1]


def settle(made: Any, errors: Errors) -> Value:
    """The value of one result of a kernel: an array, or the error in its place."""
    return Value(None, (*errors, made)) if isinstance(made, TensordError) else Value(made, errors)


def describe(
    session: SerialSession, error: BaseException, op: str, called: str, location: int, number: int
) -> TensordError:
    """Convert an exception of a kernel or a callback to an error with op, location and number."""
    where = session.source.where(location)
    if isinstance(error, TensordError):
        named = error.reraisable()
        named.op, named.location = error.op or op, error.location or where
        named.instruction = error.instruction or number
        without_frames(error)
        return named
    message = f"{called}: {type(error).__name__}: {text_of(error)}"
    if isinstance(error, MemoryError):
        described: TensordError = DeviceMemoryError(message, op=op, location=where, instruction=number)
    else:
        described = kernel_error(error, message, op=op, location=where, instruction=number)
    described.__cause__ = without_frames(error)
    return described


def denial(session: SerialSession, error: TensordError, location: int, what: str) -> Value:
    """The answer to a request that is refused: an error with op and location."""
    error = error.reraisable()
    error.op, error.location = error.op or what, error.location or session.source.where(location)
    return Value(None, (error,))


def summary(tensor: SerialTensor) -> tuple[Any, str]:
    """Meta and home of a tensor, in the form of the virtual machine's answers."""
    return (None if tensor.meta is None else (tensor.meta.shape, tensor.meta.dtype.name), tensor.home)


def decode_target(wire: Any) -> Meta | None:
    """The meta of an `out=` tensor; None for a scalar."""
    meta = decode_meta(wire)
    return meta if isinstance(meta, Meta) else None


def meta_of(array: Host) -> Meta:
    return Meta.of(array.shape, array.dtype)


def alias(base: SerialTensor, home: str) -> SerialTensor:
    tensor = SerialTensor(Value(base.value.array, base.value.errors), base.meta, home)
    tensor.meta_pending, tensor.meta_errors = base.meta_pending, base.meta_errors
    tensor.strides = base.strides
    return tensor


def tensor_of(session: SerialSession, id_: int) -> SerialTensor:
    tensor = session.tensors.get(id_)
    if tensor is None:
        state = "was released" if 0 < id_ <= session.newest else "was never defined"
        raise ProtocolError(f"tensor {id_!r} {state}")
    return tensor


def check_new(session: SerialSession, ids: Sequence[int]) -> None:
    """Check that ids are new: larger than all earlier ones."""
    for id_ in ids:
        if id_ <= session.newest:
            raise ProtocolError(f"tensor id {id_!r} is not new")


def define(session: SerialSession, id_: int, tensor: SerialTensor) -> None:
    """Enter a tensor under a new id."""
    session.tensors[id_] = tensor
    session.newest = max(session.newest, id_)


def refuse_cancelled(session: SerialSession) -> None:
    """Raise the session's cancellation, if it was cancelled and not restarted."""
    if session.cancelled is not None:
        raise session.cancelled.reraisable()
