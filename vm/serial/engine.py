"""The serial engine: executes every message at once, in program order, on plain NumPy.

The serial engine takes the same messages as the virtual machine's engine and answers to the same reply sink, but has
no edges, no copies, no streams and no device memory: a tensor is an array or an error. A view is a separate array,
so values are independent without further effort. The two engines share only the definitions of ops, messages and
errors.

A value without an array has the errors of all operands from which it was to be computed. The virtual machine raises
the error that is known first; the serial engine raises the first one in program order: errors are numbered, and the
smallest number wins. A chain keeps the error of the side effect that stopped it.

Placement has no effect here: there is no strict placement, no memory limit, and no transfer that could fail.
`effects`, `names`, `files` and `durability` handle the messages about side effects, names, files and checkpoints.
`tests/model/oracle.py` extends the engine for comparisons with the virtual machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...interpreter import ops as _ops  # noqa: F401 - fills the registry
from ...interpreter.errors import CancelledError, MetadataError, ProtocolError, TensordError
from ...interpreter.schema.infer import check_distinct
from ...interpreter.schema.opdef import OutputMetas
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire import file_messages, messages, node_messages, program_messages
from ...interpreter.wire.fields import HOST, Role
from ...interpreter.wire.forms import decode_message
from ...interpreter.wire.messages import Message, NamedMessage
from ...interpreter.wire.roles import number_of, outputs_of
from ..admission.lookup import hinted_device
from ..admission.rejection import name_of, refusal_of
from ..log import log
from ..model.session import ReplySink
from ..model.signature import call_text
from ..routines.programs import add_part, link
from .collectives import SerialCollectives
from .durability import Durability
from .effects import SerialEffects
from .files import SerialFiles
from .names import SerialNames
from .node_transfers import SerialNodeTransfers
from .routines import SerialRoutines
from .state import SerialState
from .values import (
    CANCELLED,
    CLOSED,
    SerialSession,
    SerialSignature,
    SerialTensor,
    Value,
    alias,
    check_new,
    compute,
    define,
    denial,
    describe,
    infer,
    meta_of,
    refuse_cancelled,
    settle,
    strides_of,
    summary,
    tensor_of,
)


class SerialEngine(SerialState):
    """Executes the messages of all sessions, one by one.

    `devices`: the names of devices, each with the ops that have no kernel there.
    """

    def __init__(self, devices: Mapping[str, Iterable[str]]) -> None:
        super().__init__(devices)
        self.opened = 0
        names, effects, files = SerialNames(self), SerialEffects(self), SerialFiles(self)
        self.nodes = nodes = SerialNodeTransfers(self)
        durability = Durability(self, names)
        self.routines = SerialRoutines(self, effects, self.receive)
        self.handlers: dict[type[NamedMessage], Callable[[SerialSession, Any], None]] = {
            messages.Call: self.call,
            messages.Release: self.release,
            messages.Upload: self.upload,
            messages.Fetch: self.fetch,
            messages.Wait: self.wait,
            messages.Sync: self.sync,
            messages.Effect: effects.effect,
            messages.Chain: effects.chain,
            messages.Signature: self.signature,
            messages.Location: self.location,
            messages.Span: lambda _session, _message: None,  # there is no trace
            messages.Publish: self.request("publish", names.publish),
            messages.Lookup: self.request("lookup", names.lookup),
            messages.Unpublish: self.request("unpublish", names.unpublish),
            program_messages.Convention: names.convention,
            messages.ToDevice: self.to_device,
            messages.Hint: self.hint,
            file_messages.File: files.file,
            file_messages.Load: files.load,
            file_messages.Write: files.write,
            file_messages.Flush: self.request("save", files.flush),
            file_messages.Checkpoint: self.request("checkpoint", durability.checkpoint),
            file_messages.Restore: self.request("restore", durability.restore),
            messages.Restart: lambda session, message: self.restart(session, message.generation),
            messages.Atomic: self.atomic,
            messages.ListNames: names.list_names,
            messages.Query: self.request("query", lambda _session, _message: None),
            program_messages.ProgramPart: lambda session, message: add_part(session, message, None),
            program_messages.Link: lambda session, message: link(session, message, self.devices),
            program_messages.Run: self.routines.run,
            messages.Share: self.share,
            node_messages.Collective: SerialCollectives(self).collective,
            node_messages.Send: nodes.send,
            node_messages.Recv: nodes.recv,
        }

    # -- the engine's interface ------------------------------------------------------------------------------------

    def open_session(self, reply: ReplySink, name: str = "", *, strict: bool = False) -> SerialSession:
        """Open a session. `strict` has no effect, since data never move here."""
        del strict
        self.opened += 1
        session = self.sessions[self.opened] = self.new_session(self.opened, reply)
        session.name = name
        return session

    def new_session(self, id_: int, reply: ReplySink) -> SerialSession:
        return SerialSession(id_, reply)

    def receive(self, session: SerialSession, arrays: Iterable[Message]) -> None:
        """Execute the messages of a batch or of a group."""
        with np.errstate(all="ignore"):
            for array in arrays:
                try:
                    message = decode_message(array)
                    self.handlers[type(message)](session, message)
                except Exception as error:  # the error must not affect the rest of the batch or other sessions
                    self.refuse(session, array, error)

    def atomic(self, session: SerialSession, message: messages.Atomic) -> None:
        self.routines.in_group = True
        try:
            self.receive(session, message.messages)
        finally:
            self.routines.in_group = False

    def refuse(self, session: SerialSession, array: Any, failure: Exception) -> None:
        """Poison the outputs of a message that raised, or deny its request.

        If the exception is a fault of the engine, it is logged. Later messages are still executed, since no message
        leaves a state that others depend on.
        """
        error, location = refusal_of(array, failure), number_of(array, Role.LOCATION)
        if error is None:
            log.error("a fault of the serial engine", exc_info=failure)
            error = ProtocolError(f"the serial engine has a fault: {type(failure).__name__}: {failure}")
        outputs = outputs_of(array)
        if outputs:
            self.reject(session, error, outputs, location, name_of(array))
        else:
            self.deny(session, error, number_of(array, Role.REQUEST), location, name_of(array))

    def schedule(self) -> bool:
        """Return False: there is never any work left."""
        return False

    def cancel(self, session: SerialSession, why: str = CANCELLED) -> None:
        """Refuse the session's messages until `restart`. All earlier messages have been executed."""
        session.generation += 1
        session.cancelled = CancelledError(why)

    def restart(self, session: SerialSession, generation: int) -> None:
        """Accept the session's messages and side effects again, unless the session was cancelled again in the
        meantime."""
        if generation != session.generation:
            return
        if session.cancelled is not None:
            session.chains = {id_: Value(()) for id_ in session.chains}
        session.cancelled = None

    def close(self, session: SerialSession) -> None:
        """End a session. Tensors that names or other sessions hold stay."""
        self.cancel(session, CLOSED)
        for tensor in session.tensors.values():
            tensor.holders -= 1
        session.tensors.clear()
        session.files.close_all()
        self.nodes.close(session)
        self.sessions.pop(session.id, None)

    # -- ops -------------------------------------------------------------------------------------------------------

    def call(self, session: SerialSession, message: messages.Call) -> None:
        """Execute one op, and release the operands and results that the message releases."""
        number, inputs, outputs, released, location = message
        signature = session.signatures.get(number)
        try:
            if signature is None:
                raise ProtocolError(f"signature {number} was never sent")
            if isinstance(signature, TensordError):
                raise signature.reraisable()
            refuse_cancelled(session)
            self.run(session, signature, inputs, outputs, location)
        except TensordError as error:
            self.reject(
                session, error, outputs, location, signature if isinstance(signature, SerialSignature) else "call"
            )
        scalars = signature.scalars if isinstance(signature, SerialSignature) else ()
        for position, id_ in enumerate((*inputs, *outputs)):
            if released >> position & 1 and not (position < len(scalars) and scalars[position]):
                self.drop(session, id_)

    def run(
        self,
        session: SerialSession,
        signature: SerialSignature,
        inputs: Sequence[Any],
        outputs: Sequence[int],
        location: int,
    ) -> None:
        """Check ids, compute, and define the results or overwrite the targets."""
        self.ids += 1
        operands = [
            value if scalar else tensor_of(session, value)
            for value, scalar in zip(inputs, signature.scalars, strict=True)
        ]
        targets = [tensor_of(session, id_) for id_ in outputs] if signature.in_place else []
        check_distinct(signature.op.name, targets)
        if not signature.in_place:
            check_new(session, outputs)
        metas, results = self.results(session, signature, operands, targets, location)
        for id_, target, declared, meta, value in itertools.zip_longest(
            outputs, targets, signature.outputs, metas, results
        ):
            if target is not None:
                target.value, target.strides = value, None
                continue
            made = SerialTensor(value, meta if value.array is None else meta_of(value.array), signature.device)
            made.meta_pending = declared is None
            made.meta_errors = value.errors if declared is None else ()
            made.strides = None if value.array is None else strides_of(signature, operands)
            define(session, id_, made)

    def results(
        self,
        session: SerialSession,
        signature: SerialSignature,
        operands: Sequence[Any],
        targets: Sequence[SerialTensor],
        location: int,
    ) -> tuple[OutputMetas, list[Value]]:
        """The metas of the results, as far as they are known, and the results: arrays, or errors of the operands or
        the op."""
        read = [o.value for o in operands if isinstance(o, SerialTensor)]
        found = [error for value in read for error in value.errors]
        found += [error for target in targets for error in target.meta_errors]
        errors = tuple(dict.fromkeys(found))
        metas: OutputMetas = signature.outputs
        try:
            strides_of(signature, operands)  # raises where a copy may not be made
            inferred = infer(signature, operands, targets)
            metas = tuple(now or declared for now, declared in zip(inferred, signature.outputs, strict=True))
            if any(value.array is None for value in read) or any(target.meta is None for target in targets):
                return metas, [Value(None, errors) for _ in metas]
            made = self.run_kernel(session, location, signature, operands, metas)
        except BaseException as error:
            made = [error for _ in metas]
        return metas, [settle(result, errors) for result in self.described(session, signature, made, location)]

    def run_kernel(
        self,
        session: SerialSession,
        location: int,
        signature: SerialSignature,
        operands: Sequence[Any],
        metas: OutputMetas,
    ) -> Sequence[Any]:
        """The results: arrays, with an exception in place of each result that failed alone.

        May raise. Tests override this.
        """
        del self, session, location
        return compute(signature, operands, metas)

    def described(
        self, session: SerialSession, signature: SerialSignature, made: Sequence[Any], location: int
    ) -> Sequence[Any]:
        """The op's results, in which each exception is replaced by an error that names the location.

        Each error is reported once.
        """
        op = signature.op
        errors = {
            id(failure): describe(session, failure, op.name, call_text(op, signature.attributes), location, self.ids)
            for failure in made
            if isinstance(failure, BaseException)
        }
        for error in errors.values():
            self.report_error(session, error)
        return [errors.get(id(result), result) for result in made]

    def to_device(self, session: SerialSession, message: messages.ToDevice) -> None:
        """Define the same value under another id."""
        id_, new, device, location = message
        try:
            refuse_cancelled(session)
            check_new(session, (new,))
            base = tensor_of(session, id_)
            device = self.device_of(device)
        except TensordError as error:
            known = session.tensors.get(id_)
            metas = () if known is None else (known.meta,)
            home = next((name for name in (own_name(device, self.devices),) if name in self.devices), None)
            self.reject(session, error, (new,), location, "to_device", metas, home)
            return
        define(session, new, alias(base, device))

    def hint(self, session: SerialSession, message: messages.Hint) -> None:
        """Check a hint, which has no effect: there is only one memory."""
        try:
            name = hinted_device(message, tensor_of(session, message.id).home)
            if name == HOST:
                self.check_host()
            else:
                self.device_of(name)
        except TensordError as error:
            self.deny(session, error, 0, message.location, message.what)

    # -- release ---------------------------------------------------------------------------------------------------

    def release(self, session: SerialSession, message: messages.Release) -> None:
        for id_ in message.ids:
            if not self.drop(session, id_):
                session.chains.pop(id_, None)
                self.routines.release(session, id_)

    def drop(self, session: SerialSession, id_: int) -> bool:
        """Drop a tensor's handle. False if there is no tensor with this id."""
        tensor = session.tensors.pop(id_, None)
        if tensor is not None:
            tensor.holders -= 1
        return tensor is not None

    # -- bytes in and out, waiting ---------------------------------------------------------------------------------

    def upload(self, session: SerialSession, message: messages.Upload) -> None:
        """Define a tensor from the bytes of the message."""
        id_, shape, dtype, device, payload, location = message
        try:
            refuse_cancelled(session)
            check_new(session, (id_,))
            meta = Meta.of(tuple(shape), dtype)
            device = self.device_of(device)
        except (TensordError, TypeError) as error:
            if not isinstance(error, TensordError):
                error = MetadataError(str(error))
            self.reject(session, error, (id_,), location, "asarray")
            return
        array = np.array(payload).reshape(meta.shape)
        define(session, id_, SerialTensor(Value(array), meta, device))

    def fetch(self, session: SerialSession, message: messages.Fetch) -> None:
        """Answer with the current value. If the message has an export, define a tensor with the same value."""
        id_, request, location, export = message
        try:
            refuse_cancelled(session)
            tensor = tensor_of(session, id_)
            if export:
                check_new(session, (export,))
                define(session, export, alias(tensor, tensor.home))
            value = tensor.value
        except TensordError as error:
            if export:
                self.reject(session, error, (export,), location, "fetch")
            value = denial(session, error, location, "fetch")
        session.answer(request, value)

    def share(self, session: SerialSession, message: messages.Share) -> None:
        """Refuse, and poison the export: all values are in host memory."""
        error = MetadataError("the serial engine keeps all values on the host: use numpy()")
        self.reject(session, error, (message.export,), message.location, "share")
        self.deny(session, error, message.request, message.location, "share")

    def wait(self, session: SerialSession, message: messages.Wait) -> None:
        """Answer with the metas and homes of tensors."""
        ids, request, location = message
        try:
            tensors = [tensor_of(session, id_) for id_ in ids]
        except TensordError as error:
            self.deny(session, error, request, location, "wait")
            return
        errors = tuple(error for tensor in tensors for error in tensor.value.errors)
        failed = any(tensor.value.array is None for tensor in tensors)
        session.answer(request, Value(None if failed else [summary(tensor) for tensor in tensors], errors))

    def sync(self, session: SerialSession, message: messages.Sync) -> None:
        """Answer with the number of failures since the last sync. All earlier messages have been executed."""
        session.reply(message.request, session.counts.errors_since_sync(), None)
