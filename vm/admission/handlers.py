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
        self.calls = CallHandler(scheduler, residency, infer, names, rejection)
        self.accesses = accesses = Accesses(scheduler, residency, inline, exports, rejection)
        self.effects = effects = EffectHandlers(accesses, rejection)
        self.durable = durable = Durable(scheduler, residency, names, rejection)
        self.routines = routines = RoutineHandlers(scheduler, residency, infer, accesses, effects)
        self.nodes = nodes = NodeTransferHandlers(scheduler, residency, rejection)
        self.files = FileHandlers(scheduler, residency, rejection)
        self.tensors = TensorHandlers(scheduler, residency, accesses, routines, rejection)
        self.signatures = SignatureHandlers(scheduler.devices, infer)
        self.publications = PublicationHandlers(names, durable, rejection)
        self.shares = ShareHandler(scheduler, residency, exports, rejection)
        self.collectives = CollectivesOverNodes(CollectiveHandler(scheduler, residency, rejection), nodes)
        self.handlers = self.by_kind()

    def by_kind(self) -> dict[type[NamedMessage], Handler]:
        """The table of the handlers."""
        return {
            Call: self.calls.call,
            Release: self.tensors.release,
            Upload: self.tensors.upload,
            ToDevice: self.tensors.to_device,
            Hint: self.tensors.hint,
            Fetch: self.accesses.fetch,
            Wait: self.accesses.wait,
            Sync: self.accesses.sync,
            Effect: self.effects.effect,
            Chain: self.effects.chain,
            Signature: self.signatures.signature,
            Location: self.signatures.location,
            Span: self.signatures.span,
            Publish: self.publications.publish,
            Lookup: self.publications.lookup,
            Unpublish: self.publications.unpublish,
            ListNames: self.publications.list_names,
            ProgramPart: self.routines.program,
            Link: self.routines.link,
            Run: self.routines.run,
            Convention: self.routines.convention,
            File: self.files.file,
            Load: self.files.load,
            Write: self.files.write,
            Flush: self.files.flush,
            Checkpoint: self.durable.checkpoint,
            Restore: self.durable.restore,
            Share: self.shares.share,
            Collective: self.collectives.collective,
            Send: self.nodes.send,
            Recv: self.nodes.recv,
        }
