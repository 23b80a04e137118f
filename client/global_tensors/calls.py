"""Calls on global tensors: each is one call for each part, in one atomic group with the necessary moves.

The results' metas are inferred for the whole value, so that errors raise at the user's line, as for plain tensors. The
plan of a kind of call (`plan`) is kept: a second call of the kind looks it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.layouts.layout import BROADCAST, layout_of
from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.infer import check_distinct
from ...interpreter.schema.opdef import REGISTRY, FrozenAttributes, OpDef
from ...interpreter.schema.promotion import check_scalars
from ..calls.checks import core_of, core_of_tensor, full_name, own
from ..calls.op_invocation import OpInvocation
from ..calls.signatures import SignatureKey, as_floats, inferred, operand_meta
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import CURRENT, capture_of
from ..outbox.outbox import Outbox
from ..tensor.tensor import Tensor
from .boxing.route import box
from .checks import checked
from .explaining import note, note_move, note_narrowing, note_writing
from .form import Form
from .known import KnownCall, KnownCalls
from .making import global_tensor
from .narrowing import Narrowing, narrowing
from .plan import CallKind, GlobalPlan, planned
from .reducing import WAYS, reduced_apart
from .replicas import without_failed
from .tensor import GlobalTensor
from .writing import RegionWriting, writing

KNOWN: Final = 4096  # kinds of calls whose plans are kept
_GETITEM: Final = REGISTRY["getitem"]
_SETITEM: Final = REGISTRY["setitem"]


class GlobalCalls:
    """Issues a session's calls on global tensors."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._plans: dict[CallKind, GlobalPlan] = {}
        self.known = KnownCalls(outbox)
        self.operate = self.known.operate

    # -- ops -------------------------------------------------------------------------------------------------------

    def operate_anew(
        self, op: OpDef, x: Tensor, y: Any, attributes: FrozenAttributes, in_place: bool, key: Any = None
    ) -> Tensor:
        """An op of one or two operands that was not issued before; see `carry_out`."""
        inputs = (x,) if y is None else (x, y)
        out = (x,) if in_place else None
        invocation = OpInvocation(op, inputs, attributes, out, None)
        return self.carry_out(x._core, invocation, key)[0]

    def again(self, core: Core, key: Any, operands: Sequence[Any], out: Sequence[Any] | None) -> list[Tensor] | None:
        """Issue a call by name, if it was made before. None if it was not, or has to take the general path."""
        known = self.known.get(core, key)
        if known is None:
            return None
        return self.known.issue(core, known, operands, out, self._outbox.locations.here(2))

    def carry_out(self, core: Core, invocation: OpInvocation, key: Any = None) -> list[Tensor]:
        """Issue an op, after the necessary moves; its results are global tensors, or the targets.

        If nothing has to move, `known` issues the next call with `key`, unless that is None.
        """
        try:
            return self._carried_out(core, invocation, key)
        except MetadataError as error:
            raise located(error) from None

    def _carried_out(self, core: Core, invocation: OpInvocation, key: Any) -> list[Tensor]:
        placement = placement_of(core, invocation)
        if any(type(each) is Tensor for each in invocation.inputs):
            key = None  # `known` does not issue the moves that bring a plain tensor to each device
        inputs = tuple([global_operand(core, invocation.op, each, placement) for each in invocation.inputs])
        invocation = invocation._replace(inputs=inputs, device=None)
        if invocation.op is _GETITEM:
            narrow = narrowing(inputs[0]._form, invocation.attributes[0][1])
            if narrow is not None:
                return self._narrowed(core, invocation, narrow)
        asked, floats = self._asked(core, invocation, placement)
        if floats is not None:
            return self._carried_out(core, invocation._replace(inputs=floats), None)
        if invocation.op is _SETITEM and invocation.out is not None and invocation.out[0] is invocation.inputs[0]:
            into = writing_of(asked)
            if into is not None:
                return self._written_into(core, invocation, into)
        plan = self._plans.get(asked) or self._plan(asked)
        if plan.moves:
            apart = self._reduced_apart(core, invocation)
            if apart is not None:
                return apart
            self.refuse_moves(core, plan)
        note(plan)
        if invocation.out is not None and not plan.direct and any(form.meta is None for form in plan.outputs):
            return self._written_when_known(core, invocation, plan)
        with self.grouped(placement), SHIELD:  # an exception from outside finds all parts written, or none
            made = self._issue(core, invocation, plan)
        if key is None or plan.boxes or placement.spans:
            return made
        if core.calls.native and CURRENT.capture is None:
            self._note(core, key, plan)
        return made

    def _narrowed(self, core: Core, invocation: OpInvocation, narrow: Narrowing) -> list[Tensor]:
        """Index the region between the first and the last selected element."""
        (given,), ((name, _),) = invocation.inputs, invocation.attributes
        if narrow.moves and core.strict:
            message = f"getitem: placement is strict, and bytes of {given._form} would move; use to_global"
            raise MetadataError(message, op="getitem")
        note_narrowing(given._form, narrow.step)
        with self.grouped(given._form.placement), SHIELD:
            rest = invocation._replace(inputs=(narrow.of(given),), attributes=((name, narrow.rest),))
            return self._carried_out(core, rest, None)

    def _reduced_apart(self, core: Core, invocation: OpInvocation) -> list[Tensor] | None:
        """Reduce a tensor part by part; None if that is impossible or saves nothing."""
        if core.strict or invocation.out is not None or invocation.op.name not in WAYS:
            return None
        with self.grouped(invocation.inputs[0]._form.placement), SHIELD:
            found = reduced_apart(invocation.op.name, invocation.inputs[0], dict(invocation.attributes))
        return None if found is None else [found]

    def _written_into(self, core: Core, invocation: OpInvocation, into: RegionWriting) -> list[Tensor]:
        """Write a value to a region of the target: each device writes its part of the region."""
        target, value = invocation.inputs
        if into.moves and core.strict:
            message = f"setitem: placement is strict, and bytes of {value._form} would move; use to_global"
            raise MetadataError(message, op="setitem")
        note_writing(target._form, into.steps)
        with self.grouped(target._form.placement), SHIELD:
            for part, index, piece in zip(target._parts, into.indices, into.pieces(value), strict=True):
                if index is not None:
                    part[index] = piece
        return [target]

    def _written_when_known(self, core: Core, invocation: OpInvocation, plan: GlobalPlan) -> list[Tensor]:
        """Issue an op whose results' shapes depend on data, then write its results in the targets' layout. Waits for
        the shapes in between, outside of the groups."""
        placement = plan.asked.placement
        with self.grouped(placement), SHIELD:
            made: list[Any] = self._issue(core, invocation._replace(out=None), plan)
        for each in made:
            each._known_meta()
        with self.grouped(placement), SHIELD:
            for target, value in zip(invocation.out or (), made, strict=True):
                self.overwrite(target, value._form, value._parts)
        return list(invocation.out or ())

    def _note(self, core: Core, key: Any, plan: GlobalPlan) -> None:
        """Make `known` issue the next such call, if the parts' calls have just been issued without changes."""
        entries = []
        asked, targets = plan.asked, plan.asked.out
        for part, (attributes, home) in enumerate(zip(plan.attributes, asked.placement.names, strict=True)):
            pairs = zip(plan.operands, asked.operands, strict=True)
            metas = tuple([given if form is None else form.metas[part] for form, given in pairs])
            written = None if targets is None else tuple([form.metas[part] for form in targets])
            entry = core.calls.entry(SignatureKey(asked.op, metas, attributes, home, written))
            if entry is None:
                return
            entries.append(entry)
        self.known.add(key, KnownCall(entries, plan.outputs))

    def _asked(
        self, core: Core, invocation: OpInvocation, placement: Placement
    ) -> tuple[CallKind, tuple[Any, ...] | None]:
        """The kind of a call, and its operands with floats for large ints, if there are any."""
        op, inputs, targets = invocation.op, invocation.inputs, invocation.out
        operands = tuple(
            [each._form if type(each) is GlobalTensor else operand_meta(core, op, each) for each in inputs]
        )
        check_distinct(op.name, targets or ())
        out = None if targets is None else tuple([each._form for each in targets if type(each) is GlobalTensor])
        asked = CallKind(op, operands, invocation.attributes, placement, out)
        floats = None
        if int in operands:
            key = SignatureKey(op, asked.metas, invocation.attributes, "", None)
            floats = as_floats(key, inputs)
            if floats is None:
                check_scalars(op.name, inputs, asked.metas, dict(invocation.attributes))
        return asked, floats

    def _plan(self, asked: CallKind) -> GlobalPlan:
        """Plan a new kind of call."""
        targets = None if asked.out is None else tuple([form.meta for form in asked.out])
        key = SignatureKey(asked.op, asked.metas, asked.attributes, "", targets)
        inferred(CURRENT.infer, key)
        outputs = CURRENT.infer.infer(asked.op, asked.metas, asked.attributes)
        plan = planned(asked, outputs, CURRENT.infer)
        while len(self._plans) >= KNOWN:
            del self._plans[next(iter(self._plans))]
        self._plans[asked] = plan
        return plan

    def refuse_moves(self, core: Core, plan: GlobalPlan) -> None:
        """If placement is strict, raise MetadataError for a plan that moves bytes."""
        if core.strict:
            moved = [
                f"{old} to {new}"
                for old, new in zip(plan.asked.operands, plan.operands, strict=True)
                if new is not None and old is not new
            ]
            name = plan.asked.op.name
            text = "; ".join(moved) or "the result to the layout of out="
            raise MetadataError(f"{name}: placement is strict, and bytes would move: {text}; use to_global", op=name)

    def grouped(self, *placements: Placement) -> AbstractContextManager[None]:
        """A context whose messages travel as one atomic group. It has no effect while a routine is captured, or if the
        placements have several nodes, since a group belongs to one node."""
        nodes = {node for one in placements for node in one.nodes}
        if capture_of(self._outbox) is not None or len(nodes) > 1:
            return nullcontext()
        return self._outbox.grouped()

    def _issue(self, core: Core, invocation: Any, plan: GlobalPlan) -> list[Tensor]:
        operands: list[Sequence[Any]] = []
        count = len(plan.attributes)
        for given, wanted in zip(invocation.inputs, plan.operands, strict=True):
            operands.append([given] * count if wanted is None else box(given._parts, given._form, wanted))
        targets = [each._parts for each in invocation.out or ()] if plan.direct else None
        names = plan.asked.placement.names
        cores = [core_of(core, name) for name in names] if plan.asked.placement.spans else [core] * count
        made = [
            at.calls.carry_out(
                at,
                OpInvocation(
                    invocation.op,
                    tuple([each[part] for each in operands]),
                    attributes,
                    None if targets is None else tuple([each[part] for each in targets]),
                    home,
                ),
                None,
            )
            for part, (at, attributes, home) in enumerate(zip(cores, plan.attributes, names, strict=True))
        ]
        if invocation.out is not None:
            if not plan.direct:
                for target, form, parts in zip(invocation.out, plan.outputs, zip(*made, strict=True), strict=True):
                    self.overwrite(target, form, parts)
            return list(invocation.out)
        return [GlobalTensor(form, parts) for form, parts in zip(plan.outputs, zip(*made, strict=True), strict=True)]

    def overwrite(self, target: Any, form: Form, parts: Sequence[Tensor]) -> None:
        """Write a value with these parts to a global tensor."""
        for part, value in zip(target._parts, box(parts, form, target._form), strict=True):
            part[...] = value if value.dtype == part.dtype else value.astype(part.dtype)

    # -- uploads, and moves ---------------------------------------------------------------------------------------

    def upload(self, core: Core, values: Any, placement: Placement, dtype: Any) -> Tensor:
        """A global tensor with these values, in equal parts."""
        return global_tensor(core, values, placement, None, dtype)

    def to_global(self, tensor: Any, placement: Any, layout: Any) -> GlobalTensor:
        """The value of a tensor, plain or global, in another placement and layout."""
        core = tensor._core
        own(core, tensor)
        given = placed(tensor)
        wanted = given._form.placement if placement is None else checked(core, placement)
        atoms = given._form.layout if layout is None and placement is None else BROADCAST if layout is None else layout
        if layout is None and placement is not None:
            atoms = (BROADCAST,) * len(wanted.grid)
        meta = given._meta
        if meta is None:
            meta = given._known_meta()
        try:
            form = Form.of(meta, wanted, layout_of(atoms, len(wanted.grid), meta))
        except MetadataError as error:
            raise located(error) from None
        return self.boxed(given if placement is None else without_failed(given), form)

    def boxed(self, given: GlobalTensor, form: Form) -> GlobalTensor:
        """A global tensor of that form with the same value, and parts of its own."""
        note_move("to_global", given._form, form)
        with self.grouped(given._form.placement, form.placement):
            parts = box(given._parts, given._form, form)
            mine = {id(part) for part in given._parts}
            parts = [part.copy() if id(part) in mine else part for part in parts]
        return GlobalTensor(form, parts)

    def to_device(self, tensor: Any, device: Any) -> Tensor:
        """The value on one device, as a plain tensor; with a placement, in equal parts."""
        core = tensor._core
        if isinstance(device, Placement):
            return self.to_global(tensor, device, None)
        alone = Placement((full_name(core, device),), (1,))
        (part,) = self.to_global(tensor, alone, BROADCAST)._parts
        return part


def writing_of(asked: CallKind) -> RegionWriting | None:
    """How to write to a part of a tensor along its split axes, if the call does so; MetadataError for a value that does
    not fit."""
    target, value = asked.operands
    inferred(CURRENT.infer, SignatureKey(asked.op, asked.metas, asked.attributes, "", (target.meta,)))
    return writing(target, asked.attributes[0][1], value if isinstance(value, Form) else None)


def placement_of(core: Core, invocation: OpInvocation) -> Placement:
    """The placement of a call; MetadataError if there are several, and for plain targets."""
    op, placements = invocation.op.name, []
    for tensor in (*(invocation.out or ()), *invocation.inputs):
        if type(tensor) is GlobalTensor:
            own(core, tensor)
            placements.append(tensor._form.placement)
    for tensor in invocation.out or ():
        if type(tensor) is not GlobalTensor:
            raise MetadataTypeError(f"{op}: out= is a tensor of one device: make it global (to_global)", op=op)
    if isinstance(invocation.device, Placement):
        placements.append(checked(core, invocation.device))
    elif not placements and core.placement is not None:
        placements.append(core.placement)
    elif invocation.device is not None:
        raise MetadataError(f"{op}: a global tensor is on several devices: device= is a placement", op=op)
    if len(set(placements)) > 1:
        one, other = placements[0], next(each for each in placements if each != placements[0])
        raise MetadataError(
            f"{op}: its operands are on two placements, {one} and {other}: bring them to one with to_global", op=op
        )
    return placements[0]


def global_operand(core: Core, op: OpDef, given: Any, placement: Placement) -> Any:
    """An operand of a call on global tensors. A plain tensor without dimensions counts as one in equal parts."""
    if not isinstance(given, Tensor) or type(given) is GlobalTensor:
        return given
    own(core_of_tensor(core, given), given)
    if given._meta is not None and not given._meta.ndim and not core.strict:
        return spread(op, given, placement)
    message = f"{op.name}: a tensor of one device among global tensors: use session.global_tensor(tensor, placement)"
    raise MetadataTypeError(message, op=op.name)


def spread(op: OpDef, tensor: Tensor, placement: Placement) -> GlobalTensor:
    """A plain tensor in equal parts, for an op."""
    form = Form.of(tensor._meta, placement, (BROADCAST,) * len(placement.grid))
    note_move(op.name, placed(tensor)._form, form, "a tensor of one device, without dimensions, goes to each device")
    return GlobalTensor(form, [tensor.to_device(name) for name in placement.names])


def placed(tensor: Any) -> GlobalTensor:
    """A plain tensor as a global one on its device; a global one unchanged."""
    if type(tensor) is GlobalTensor:
        return tensor
    return GlobalTensor(Form.of(tensor._meta, Placement((tensor._home,), (1,)), (BROADCAST,)), [tensor])
