"""Plans: resolved signatures, computed once.

A signature (op, attributes, input metas, device, metas of the targets of `out=`) arrives once per session. All calls
with its number use its plan: the metas of the results, the kernel bound to the device's array module, whether calls may
run at admission, and the inputs whose memory a result may take over.

If the meta of an input is still pending, the results and the work are unknown; once the meta is known, `with_metas`
makes another plan, for that call alone. Exceptions of a plugin's device become MetadataErrors: they fail the call, and
never the machine.

There are three ways to run a call, and the plan says which ones are possible:

- `immediate`: the kernel runs at admission, or is launched there, without an instruction (`admission/inline`). On a
  device that launches this holds once kernels with the plan's `key` have run.
- `launchable`: an instruction is made, which on a device that launches may be launched at admission, too
  (`scheduler/fences`); `obstacle` says why not.
- Otherwise an instruction waits for its operands, and a stream runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.schema.infer import InferCache, check_targets
from ...interpreter.schema.opdef import (
    DATA_DEPENDENT_SHAPE,
    MACHINE_PROCESS,
    FrozenAttributes,
    OpDef,
    OutputMetas,
    no_kernel,
)
from ...interpreter.schema.promotion import check_scalars
from ...interpreter.types.joined_axes import JoinedAxes
from ...interpreter.types.meta import Meta, OperandMeta
from ...streams.device import KernelCall
from .device_state import DeviceState
from .number import number_of
from .signature import attributes_of, plain
from .work_plan import WorkPlan


class Plan(WorkPlan):
    """A resolved signature. `metas`: those of the inputs; a scalar's is its type, a pending one is None. `targets`: the
    metas of the tensors of `out=`, if the call updates some. `session`: the id of the session that sent the
    signature."""

    __slots__ = (
        "certain",
        "donatable_bits",
        "donatable_inputs",
        "immediate",
        "kernel",
        "layouts",
        "number_array",
        "op_counts",
        "operand_count",
        "output",
        "pending",
        "returns_view",
        "scalars",
        "session",
        "takes_two_tensors",
        "warm",
    )

    def __init__(
        self,
        op: OpDef,
        attributes: FrozenAttributes,
        metas: tuple[OperandMeta | None, ...],
        device: DeviceState,
        targets: tuple[Meta | None, ...] | None,
        infer: InferCache,
        session: int,
    ) -> None:
        outputs = results_of(op, attributes, metas, device, targets, infer)
        super().__init__(op, op.name, device, metas, outputs, attributes)
        self.session = session
        self.op_counts = device.tally.of(op.name)
        self.operand_count = len(metas)
        self.in_place = targets is not None
        self.scalars = tuple(isinstance(meta, type) for meta in metas)
        self.takes_two_tensors = len(metas) == 2 and all(type(meta) is Meta for meta in metas)
        self.pending = None in metas
        self.output: Any = outputs[0] if len(outputs) == 1 else None  # the meta of a single result
        known = tuple([meta for meta in metas if meta is not None])
        self.work = 0 if self.pending else op.estimate(known, outputs, dict(attributes))
        max_bytes = op.max_bytes(known) if op.max_bytes is not None and not self.pending else 0
        self.max_bytes = max_bytes if max_bytes <= device.backend.limit else 0  # otherwise data decide whether they fit
        call = KernelCall(op, dict(attributes), metas, outputs, self.in_place, self.work)
        self.kernel, self.scratch = bind(device, call)
        self.number_array = number_of(op, metas) if device.backend.takes_numbers else None
        self.donatable_inputs = donatable_inputs(op, metas, outputs)
        # The same as bits, as a message's `released` is.
        self.donatable_bits = sum(1 << position for position in self.donatable_inputs if position < 63)
        self.immediate = not self.open and runs_at_once(op) and self.work <= device.inline_work and not self.scratch
        self.reports = device.backend.reports_late and op.reports_late(metas, dict(attributes))
        self.blocking = op.blocking and not self.reports
        self.launchable = device.launches is not None and not self.obstacle()
        # Whether the op may be launched without an instruction, since it cannot fail unless the device is lost.
        self.certain = self.launchable and not self.reports and runs_at_once(op)
        if device.launches is not None:
            self.key = None if self.pending else key_of(op, attributes, metas, outputs)
            self.immediate = self.certain and self.key in device.launches.seen
        self.warm = False  # the kernels for packed operands are known to be compiled and loaded
        # Whether the result is a view if strides can express it; such a call needs no kernel.
        self.returns_view = op.view is not None and not self.in_place and not self.pending and len(metas) == 1
        self.layouts: dict[Any, Any] = {}  # of a view op: (offset, strides) of a base -> those of its view, or None
        reads = "".join("" if scalar else "r" for scalar in self.scalars)
        kinds = reads + ("2" if op.dynamic else "w") * len(outputs)
        self.describe(session, Opcode.CALL, kinds, attributes_of(op, attributes), self.work, ())

    def obstacle(self) -> str:
        """The reason why the kernel cannot be launched at admission, for reports; empty if it can."""
        op, backend = self.op, self.device.backend
        if self.open:
            return DATA_DEPENDENT_SHAPE
        if self.blocking:
            return op.host_read_reason
        if not op.prompt:
            return "it may take any time"
        if any(path.startswith("fft.") for path in op.needs):
            return "plans of FFTs belong to a thread"  # CuPy's
        axes = [len(meta.shape) for meta in (*self.metas, *self.outputs) if isinstance(meta, Meta)]
        if max(axes, default=0) > backend.most_axes:
            return f"arrays of {backend.name} have {backend.most_axes} axes at the most"  # an instruction reports it
        if backend.raises_late and not op.never_raises(self.metas, dict(self.attributes)):
            return "it may refuse its data"
        return ""

    def with_metas(
        self,
        operands: Sequence[Any],
        metas: tuple[OperandMeta | None, ...],
        infer: InferCache,
        targets: OutputMetas | None,
    ) -> Plan:
        """The plan for the same call once its pending metas are known; MetadataError as at the call.

        A number among the operands is checked here, too, since the dtype that it must fit was not known at the call.
        """
        try:
            plan = Plan(self.op, self.attributes, metas, self.device, targets, infer, self.session)
            check_scalars(self.op.name, operands, metas, dict(self.attributes))
        except TensordError:
            raise
        except Exception as error:  # as for a client's signature: no request may stop other sessions
            raise MetadataError(f"{self.label}: {error!r}", op=self.label) from error
        return plan


def results_of(
    op: OpDef,
    attributes: FrozenAttributes,
    metas: tuple[OperandMeta | None, ...],
    device: DeviceState,
    targets: tuple[Meta | None, ...] | None,
    infer: InferCache,
) -> OutputMetas:
    """The metas of the results; MetadataError if the device, the op or the targets do not take these operands."""
    if op.name in device.backend.missing:
        raise no_kernel(op.name, device.name, device.backend.missing, MACHINE_PROCESS)
    if op.view is None:
        most = max((m.nbytes for m in metas if isinstance(m, Meta)), default=0)
        device.refuse_vast(most, f"{op.name}: an operand")
    return check_targets(op, infer.infer(op, metas, attributes), targets)


def runs_at_once(op: OpDef) -> bool:
    """Whether small calls may run at admission, where the failure of one of several results could not be reported."""
    return op.prompt and op.outputs == 1 and op.view is None and not op.writes_part


def key_of(
    op: OpDef, attributes: FrozenAttributes, metas: tuple[OperandMeta | None, ...], outputs: OutputMetas
) -> tuple[Any, ...]:
    """The key of a call's compiled kernels: calls with equal keys use the same kernels.

    The kernels of an elementwise op depend on the dtypes, the axes left after joining neighbours, and the width of an
    index. The choice made by library functions and reductions is unknown, so their keys contain the shapes.
    """
    plain_metas = tuple(map(plain, metas))
    if not op.elementwise or None in outputs:
        return (op.name, attributes, plain_metas)
    shapes = [meta.shape for meta in (*metas, *outputs) if isinstance(meta, Meta)]
    wide = any(meta.nbytes >> 31 for meta in (*metas, *outputs) if isinstance(meta, Meta))
    return (op.name, attributes, tuple([dtype for _, dtype in plain_metas]), JoinedAxes.of(shapes).extends, wide)


def donatable_inputs(op: OpDef, metas: tuple[OperandMeta | None, ...], outputs: OutputMetas) -> tuple[int, ...]:
    """The positions of the inputs whose memory the result may take over, if they are released with the call."""
    first = outputs[0] if len(outputs) == 1 else None
    if not op.elementwise or first is None:
        return ()
    return tuple(i for i, meta in enumerate(metas) if isinstance(meta, Meta) and fits(meta, first))


def fits(meta: Meta, target: Meta) -> bool:
    """Whether an elementwise result may overwrite this input: same shape and itemsize."""
    return meta.shape == target.shape and meta.dtype.itemsize == target.dtype.itemsize


def bind(device: DeviceState, call: KernelCall) -> tuple[Any, int]:
    """The kernel of a call, and the bytes of its temporaries; MetadataError for any exception of a plugin's device."""
    try:
        return device.backend.bind_kernel(call)
    except TensordError:
        raise
    except Exception as error:
        message = f"{call.op.name}: {device.name} cannot bind a kernel: {type(error).__name__}: {error}"
        raise MetadataError(message, op=call.op.name) from error
