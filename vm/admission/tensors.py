"""Handlers of messages about single tensors: uploads, moves to a device, releases and placement hints."""

from __future__ import annotations

from ...interpreter.errors import QuotaError, TensordError
from ...interpreter.types.device_names import own_name
from ...interpreter.wire.fields import HOST
from ...interpreter.wire.messages import Hint, Release, ToDevice, Upload
from ..memory.pins import end_pins, pin, unpin
from ..model.charges import check_bytes
from ..model.session import Cause, VmSession
from ..placement.hints import evict_copies, host_for, prefetch
from ..placement.residency import Residency
from ..placement.views import moved
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .lookup import check_new, device_of, enter, hinted_device, refuse_cancelled, tensor_of
from .quotas import check_tensors
from .rejection import Rejection
from .routines import RoutineHandlers


class TensorHandlers:
    """The handlers of UPLOAD, TO_DEVICE, RELEASE and HINT messages."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        accesses: Accesses,
        routines: RoutineHandlers,
        rejection: Rejection,
    ) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.accesses = accesses
        self.routines = routines
        self.rejection = rejection

    def upload(self, session: VmSession, message: Upload) -> None:
        """Admit an upload, if the session's quotas allow it."""
        try:
            check_tensors(session, 1)
            check_bytes(session, message.payload.nbytes)
        except QuotaError as error:
            self.rejection.reject(session, error, (message.output,), message.location, "asarray")
            return
        self.accesses.upload(session, message)

    def to_device(self, session: VmSession, message: ToDevice) -> None:
        """Make a tensor with the same value and another home; `Residency.begin_moves` says when the bytes move."""
        new, devices = message.output, self.scheduler.devices
        try:
            refuse_cancelled(session)
            check_new(session, (new,))
            base, device = tensor_of(session, message.id), device_of(devices, message.device)
            refuse_lost(device)
            check_tensors(session, 1)
            self.residency.check_route(base, device)
        except TensordError as error:
            known = session.tensors.get(message.id)
            metas = () if known is None else (known.meta,)
            home = devices.get(own_name(message.device, devices))
            self.rejection.reject(session, error, (new,), message.location, "to_device", metas, home)
            return
        tensor = moved(base, device, session, message.location)
        enter(session, new, tensor)
        session.moves[tensor] = None

    def release(self, session: VmSession, message: Release) -> None:
        """Release handles; with the last holder, the storage's copies are dropped, each after its last reader."""
        for id_ in message.ids:
            tensor = session.tensors.pop(id_, None)
            if tensor is None:
                if session.in_run():  # an inner value that was never defined; its id may be that of a chain
                    continue
                session.chains.pop(id_, None)
                session.refused_chains.pop(id_, None)
                self.routines.release(session, id_)
                continue
            if session.pins:
                end_pins(session, id_)
            self.residency.releasing.release(session, tensor)

    def hint(self, session: VmSession, message: Hint) -> None:
        """Apply a placement hint: pin, unpin, evict or prefetch (`placement.hints`, `memory.pins`)."""
        id_, kind, _, location = message
        try:
            tensor = tensor_of(session, id_)
            name = hinted_device(message, tensor.home.name)
            device = host_for(self.residency, tensor) if name == HOST else device_of(self.scheduler.devices, name)
            if kind == "pin":
                pin(session, id_, tensor)
            elif kind == "unpin":
                unpin(session, id_)
            elif session.cancelled is not None or device.backend.lost is not None:
                return
            elif kind == "evict":
                evict_copies(self.residency, tensor.storage, device, Cause(session, location))
            else:
                prefetch(self.residency, tensor, device, Cause(session, location))
        except TensordError as error:
            self.rejection.deny(session, error, 0, location, kind)
