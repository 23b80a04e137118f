"""The facts known before an instruction runs, which all equal instructions share: for a call of an op (`Plan`), or for
a segment of a routine (`SegmentPlan`).

The scheduler, memory and the trace read them here, and need not know which of the two it is. The texts and tuples for
trace records are made once, with the plan: a record only refers to them.
"""

from __future__ import annotations

from typing import Any

from ...interpreter.opcodes import Opcode
from ...interpreter.schema.opdef import FrozenAttributes, OpDef, OutputMetas
from ...interpreter.types.meta import OperandMeta
from .device_state import DeviceState
from .signature import NOTHING, UNMADE, Maker, Signature, plain


class WorkPlan:
    """The fields that any plan has."""

    __slots__ = (
        "attributes",
        "blocking",
        "device",
        "in_place",
        "key",
        "label",
        "launchable",
        "maker",
        "max_bytes",
        "metas",
        "op",
        "open",
        "outputs",
        "prompt",
        "record_head",
        "reports",
        "scratch",
        "signature",
        "stream",
        "work",
    )

    def __init__(
        self,
        op: OpDef,
        label: str,
        device: DeviceState,
        metas: tuple[OperandMeta | None, ...],
        outputs: OutputMetas,
        attributes: FrozenAttributes = (),
    ) -> None:
        self.op = op
        self.label = label
        self.device = device
        self.stream = device.compute[0]  # decides whether small ops may run on the driving thread
        self.metas = metas
        self.outputs = outputs
        self.attributes = attributes
        self.open = None in metas or None in outputs  # some metas are not known when the client calls
        self.in_place = False  # the call updates the tensors of `out=`
        self.work = 0  # estimated, in element operations
        self.max_bytes = 0  # the most bytes of the results, if their size depends on data
        self.scratch = 0  # bytes of the kernels' temporaries
        self.prompt = op.prompt
        # Whether the kernel reports only after it has run that it refuses its data; whether it waits for the device.
        self.reports = False
        self.blocking = op.blocking
        # Whether calling the kernels only launches, on a device that launches, once kernels with this `key` have run.
        self.launchable = False
        self.key: Any = None
        self.signature: Signature = NOTHING  # in trace records
        self.maker: Maker = UNMADE  # noted in the storages of the results, for reports about memory
        self.record_head: tuple[Any, ...] = ()  # the common fields of all records of a call that ran at admission

    def describe(self, session: int, opcode: Opcode, kinds: str, text: str, work: int, part: tuple[Any, ...]) -> None:
        """Set the fields for records.

        `kinds`: a letter for each operand and result: `r` reads, `w` writes, `2` writes and decides the meta. `text`:
        the attributes. `part`: the part of a routine that a segment is; empty for a call.

        `record_head`: session, opcode, op, device, operand kinds, signature.
        """
        common = (tuple(map(plain, self.metas)), tuple(map(plain, self.outputs)), text, work)
        self.signature = (*common, part) if part else common
        self.maker = (self.label, common)
        self.record_head = (session, opcode.value, self.label, self.device.name, kinds, self.signature)
