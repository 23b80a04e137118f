"""The handlers of messages, by kind, and the parts of admission that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...interpreter import ops as _ops  # noqa: F401 - fills the registry
from ...interpreter.schema.infer import InferCache
from ...interpreter.wire.file_messages import Checkpoint, File, Flush, Load, Restore, Write
from ...interpreter.wire.messages import (
    Call,
    Chain,
    Effect,
    Fetch,
    Hint,
    ListNames,
    Location,
    Lookup,
    NamedMessage,
    Publish,
    Release,
    Share,
    Signature,
    Span,
    Sync,
    ToDevice,
    Unpublish,
    Upload,
    Wait,
)
from ...interpreter.wire.node_messages import Collective, Recv, Send
from ...interpreter.wire.program_messages import Convention, Link, ProgramPart, Run
from ..model.directory import Directory
from ..model.session import VmSession
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .calls import CallHandler
from .cancellation import Cancellation
from .collectives import CollectiveHandler
from .collectives_over_nodes import CollectivesOverNodes
from .durable import Durable
from .effects import EffectHandlers
from .exports import Exports
from .files import FileHandlers
from .inline import Inline
from .names import NameHandlers
from .node_transfers import NodeTransferHandlers
from .publications import PublicationHandlers
from .rejection import Rejection
from .routines import RoutineHandlers
from .shares import ShareHandler
from .signatures import SignatureHandlers
from .tensors import TensorHandlers

Handler = Callable[[VmSession, Any], None]


class Handlers:
    """The parts of admission. `handlers`: by the kind of a message, the function that admits it.

    The kinds about the whole of a session, and about the machine, are `Admission`'s.
    """

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory, infer: InferCache) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.names = names = NameHandlers(scheduler, residency, directory)
        self.rejection = rejection = Rejection(scheduler, residency, scheduler.devices)
        self.cancellation = Cancellation(scheduler, residency, directory)
        self.exports = exports = Exports(scheduler, residency, rejection)
        self.inline = inline = Inline(scheduler, residency, names)
        self.calls = calls = CallHandler(scheduler, residency, infer, names, rejection)
        self.accesses = accesses = Accesses(scheduler, residency, inline, exports, rejection)
        self.effects = effects = EffectHandlers(accesses, rejection)
        self.durable = durable = Durable(scheduler, residency, names, rejection)
        self.routines = routines = RoutineHandlers(scheduler, residency, infer, accesses, effects)
        self.nodes = nodes = NodeTransferHandlers(scheduler, residency, rejection)
        files = FileHandlers(scheduler, residency, rejection)
        tensors = TensorHandlers(scheduler, residency, accesses, routines, rejection)
        signatures = SignatureHandlers(scheduler.devices, infer)
        publications = PublicationHandlers(names, durable, rejection)
        self.handlers: dict[type[NamedMessage], Handler] = {
            Call: calls.call,
            Release: tensors.release,
            Upload: tensors.upload,
            ToDevice: tensors.to_device,
            Hint: tensors.hint,
            Fetch: accesses.fetch,
            Wait: accesses.wait,
            Sync: accesses.sync,
            Effect: effects.effect,
            Chain: effects.chain,
            Signature: signatures.signature,
            Location: signatures.location,
            Span: signatures.span,
            Publish: publications.publish,
            Lookup: publications.lookup,
            Unpublish: publications.unpublish,
            ListNames: publications.list_names,
            ProgramPart: routines.program,
            Link: routines.link,
            Run: routines.run,
            Convention: routines.convention,
            File: files.file,
            Load: files.load,
            Write: files.write,
            Flush: files.flush,
            Checkpoint: durable.checkpoint,
            Restore: durable.restore,
            Share: ShareHandler(scheduler, residency, exports, rejection).share,
            Collective: CollectivesOverNodes(CollectiveHandler(scheduler, residency, rejection), nodes).collective,
            Send: nodes.send,
            Recv: nodes.recv,
        }
