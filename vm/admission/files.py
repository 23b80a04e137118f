"""Admission of files: a client's file is opened once (FILE), and its tensors are defined from their entries (LOAD).

Nothing is read then: a tensor that was loaded has its value in the store, in a buffer that is a part of the file, and
whatever first needs it elsewhere gets a transfer. A file stays open as long as a value lies in it.
"""

from __future__ import annotations

from typing import Final

from ...interpreter.errors import ProtocolError, QuotaError, TensordError
from ...interpreter.files.header import Entry
from ...interpreter.files.on_wire import decode_entry, lacking
from ...interpreter.wire.messages import File, Load
from ...streams.stored import LoadedStretch, buffer_of
from ..model.device_state import DeviceState
from ..model.session import VmSession
from ..model.signature import NOTHING, Maker
from ..model.tensor import Copy, Storage, Tensor
from ..placement.residency import Residency
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from .lookup import check_new, device_of, enter, note_maker, refuse_cancelled
from .quotas import check_tensors
from .rejection import Rejection

LOADED: Final[Maker] = ("load", NOTHING)


class Files:
    """The handlers of FILE and LOAD messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.rejection = rejection

    def file(self, session: VmSession, message: File) -> None:
        """Open a file, or forget it."""
        number, place, request = message
        try:
            session.files.pop(number, None)
            if not place:
                session.reply(request, None, None)
                return
            if len(session.opened) >= session.limits.files:
                raise QuotaError(
                    f"1 file more: the session's tensors lie in {len(session.opened)} of {session.limits.files}; "
                    "release some, load them with own=True, or raise the quota (files)"
                )
            file = session.open_file(place)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "load")
            return
        session.files[number] = file
        session.opened.add(file)
        self.residency.files.add(file)
        session.reply(request, list(file.identity), None)

    def load(self, session: VmSession, message: Load) -> None:
        """Define tensors of a file, in the order of the entries."""
        number, ids, entries, name, own, digest, location = message
        try:
            refuse_cancelled(session)
            check_new(session, ids)
            file, store = session.files.get(number), self.residency.store
            if file is None:
                raise ProtocolError(f"file {number} is not open")
            if store is None:
                raise ProtocolError("this machine has no store, so it loads no files")
            if len(ids) != len(entries):
                raise ProtocolError(f"{len(ids)} ids for {len(entries)} tensors")
            device = device_of(self.scheduler.devices, name)
            refuse_lost(device)
            check_tensors(session, len(ids))
            found = [lacking(one) or decode_entry(file, one) for one in entries]
        except TensordError as error:
            self.rejection.reject(session, error, ids, location, "load")
            return
        for id_, entry in zip(ids, found, strict=True):
            if isinstance(entry, Entry):
                stretch = LoadedStretch(file, entry, once=own, digest=digest)
                enter(session, id_, self.deferred(stretch, store, device, location))
            else:
                name, why = entry
                self.rejection.reject(session, file.malformed(f"tensor {name!r} {why}"), (id_,), location, "load")

    def deferred(self, stretch: LoadedStretch, store: DeviceState, home: DeviceState, location: int) -> Tensor:
        """A tensor whose only copy lies in a file. It costs the session no memory yet."""
        meta = stretch.entry.meta
        if meta is None:
            raise AssertionError("an entry from the wire has a meta")
        residency = self.residency
        residency.copies += 1
        copy = Copy(residency.copies, store, 0, 1)
        copy.buffer = buffer_of(stretch)
        storage = Storage(meta.nbytes, store, copy)
        note_maker(storage, LOADED, location, self.scheduler.now)
        return Tensor(meta, storage, home)
