"""Checks the invariants of an engine between two passes, for every object.

`model/tensor.py`, `model/device_state.py` and `scheduler/fair_queue.py` state the invariants. The checks recount
everything from the live objects, since the engine's own functions would repeat their mistakes. All checks together take
some 10 us per tensor and instruction.

The checks run after every step of the random programs (tests/model), and in a live daemon by `tensord doctor --deep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..memory.run_memory import run_bytes
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.lifecycle import PENDING, Status
from ..model.needs import Needs
from ..model.session import VmSession
from ..model.tensor import Copy, Storage, VmTensor

if TYPE_CHECKING:
    from ..engine import Engine

MAX_VIOLATIONS = 100  # the most violations that are reported: one mistake often breaks many rules


class Census:
    """All objects that an engine holds, each once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.live = list(engine.live.values())
        self.holders: Counter[VmTensor] = Counter(engine.directory.tensors())
        self.snapshots = engine.scheduler.snapshots
        self.storages: dict[Storage, None] = {tensor.storage: None for tensor in self.holders}
        self.storages |= dict.fromkeys(self.snapshots)
        self.copies: dict[Copy, None] = {}
        for storage in self.storages:
            self.copies |= dict.fromkeys(storage.current())
        for session in engine.directory.sessions.values():
            self.copies |= dict.fromkeys(session.chains.values())
        for instruction in self.live:
            self.copies |= dict.fromkeys(instruction.reads + instruction.writes)
        for export in engine.residency.releasing.exports.values():
            self.copies[export.copy] = None
        for device in engine.tiers.values():
            self.copies |= dict.fromkeys(device.standby)

    def accesses(self) -> Iterator[tuple[Instruction, Copy]]:
        """(instruction, copy) for each live access; once if the instruction both reads and writes the copy."""
        for instruction in self.live:
            for copy in dict.fromkeys(instruction.reads + instruction.writes):
                yield instruction, copy


def violations(engine: Engine) -> list[str]:
    """The broken invariants: each by the name of its check, with an object that breaks it. Empty for a sound engine."""
    census = Census(engine)
    texts: list[str] = []
    for check in CHECKS:
        for text in check(census):
            texts.append(f"{check.__name__}: {text}")
            if len(texts) >= MAX_VIOLATIONS:
                return texts
    return texts


# -- tensors and copies ------------------------------------------------------------------------------------------------


def holders_are_counted(census: Census) -> Iterator[str]:
    """The `holders` of a tensor counts its handles and names."""
    for tensor, count in census.holders.items():
        if tensor.holders != count:
            yield f"a tensor on {tensor.home.name} has `holders` {tensor.holders}, but {count} handles and names"


def sharers_are_counted(census: Census) -> Iterator[str]:
    """The `sharers` of a storage counts its live tensors, and the checkpoints that read it."""
    sharers = Counter(tensor.storage for tensor in census.holders) + Counter(census.snapshots)
    for storage, count in sharers.items():
        if storage.sharers != count:
            yield f"{name(storage)} has `sharers` {storage.sharers}, but {count} tensors and checkpoints share it"


def maps_hold_current_copies(census: Census) -> Iterator[str]:
    """A copy is current if and only if its storage's map holds it; a current copy has the storage's version."""
    mapped: set[Copy] = set()
    for storage in census.storages:
        mapped.update(storage.current())
        for device, copy in storage.copies.items():
            if copy.device is not device or copy.view is not None:
                yield f"{copy} is not a whole copy on {device.name}, but {name(storage)} maps the device to it"
        for (device, view), copy in (storage.views or {}).items():
            if copy.device is not device or copy.view != view:
                yield f"{copy} is not the copy of view {view} on {device.name}, but {name(storage)} maps the view to it"
        for copy in storage.current():
            if not copy.current:
                yield f"{copy} is in the map of {name(storage)}, but is not `current`"
            if copy.version != storage.version:
                yield f"{copy} is in the map of {name(storage)}, whose version is {storage.version}"
    chains = {copy for session in census.engine.directory.sessions.values() for copy in session.chains.values()}
    for copy in census.copies:
        if copy.current and copy.nbytes > 0 and copy not in mapped and copy not in chains:
            yield f"{copy} is `current`, but in no storage's map"


def uses_are_counted(census: Census) -> Iterator[str]:
    """`uses` counts a copy's live accesses and mappings, and one if it is a standby; `queued` counts accesses that a
    stream has."""
    uses: Counter[Copy] = Counter()
    queued: Counter[Copy] = Counter()
    for instruction, copy in census.accesses():
        uses[copy] += instruction.traits.holds_memory
        queued[copy] += instruction.queue is not None and instruction.traits.holds_memory
    for copy in census.copies:
        mappings, standby = copy.device.mapped.get(copy, 0), int(copy in copy.device.standby)
        if copy.uses != uses[copy] + mappings + standby:
            found = f"{uses[copy]} accesses, {mappings} mappings and {standby} standbys"
            yield f"{copy} has `uses` {copy.uses}, but {found}"
        if copy.queued != queued[copy]:
            yield f"{copy} has `queued` {copy.queued}, but streams have {queued[copy]} of its accesses"


def access_lists_are_live(census: Census) -> Iterator[str]:
    """The writer and the readers of a copy are live instructions that access it: finished accesses are removed."""
    live = set(census.live)
    for copy in census.copies:
        if copy.writer is not None and (copy.writer not in live or copy not in copy.writer.writes):
            yield f"{copy} has the `writer` {copy.writer!r}, which is not live or does not write it"
        for reader in copy.readers or ():
            if reader not in live or copy not in reader.reads:
                yield f"{copy} has the reader {reader!r}, which is not live or does not read it"


def stale_copies_without_uses_have_no_buffer(census: Census) -> Iterator[str]:
    """A stale copy without uses has no buffer: its last use frees the buffer."""
    for copy in census.copies:
        if not copy.current and not copy.uses and copy.buffer is not None:
            yield f"{copy} is not `current` and has no `uses`, but has a buffer"


# -- memory ------------------------------------------------------------------------------------------------------------


def current_copies_are_candidates(census: Census) -> Iterator[str]:
    """The candidates of a device that has a tier below and was short of memory are all its current copies, each with
    its storage."""
    expected: dict[DeviceState, dict[Copy, Storage]] = {device: {} for device in census.engine.tiers.values()}
    for storage in census.storages:
        for copy in storage.current():
            expected[copy.device][copy] = storage
    for device, current in expected.items():
        if device.below is not None and device.short and device.candidates != current:
            missing = list(current.keys() - device.candidates.keys())
            wrong = [copy for copy, storage in device.candidates.items() if current.get(copy) is not storage]
            yield f"{device.name} lacks the candidates {missing}, and has candidates with a wrong storage {wrong}"


def memory_adds_up(census: Census) -> Iterator[str]:
    """Each allocated byte belongs to a copy, a kernel's temporaries, the memory kept for runs, or a reusable buffer; no
    two copies share a buffer."""
    owners: dict[int, Copy] = {}
    held: Counter[DeviceState] = Counter()
    for copy in census.copies:
        if copy.buffer is not None:
            held[copy.device] += copy.buffer.nbytes
            if id(copy.buffer) in owners:
                yield f"{copy} and {owners[id(copy.buffer)]} share one buffer"
            owners[id(copy.buffer)] = copy
    for instruction in census.live:
        held[instruction.device] += instruction.scratch
        if instruction.scratch and instruction.status is not Status.DISPATCHED:
            yield f"{instruction!r} is not DISPATCHED, but has {instruction.scratch} bytes of temporaries"
    for device in census.engine.tiers.values():
        held[device] += sum(buffer.nbytes for buffers in device.reusable.values() for buffer in buffers)
        held[device] += sum(device.backend.blocks_left_open()) + run_bytes(device)
        if device.backend.allocated != held[device]:
            allocated = device.backend.allocated
            yield f"{device.name} has {allocated} bytes allocated, but {held[device]} bytes have an owner"


def needs_are_of_live_instructions(census: Census) -> Iterator[str]:
    """The needs of a device belong to live instructions, in program order, and each is in one list only."""
    for device in census.engine.tiers.values():
        order = [instruction.admitted for instruction in device.unreserved]
        if order != sorted(order) or any(instruction.retired for instruction in device.unreserved):
            yield f"{device.name} has retired or unordered instructions in `unreserved`: {list(device.unreserved)}"
        for author, theirs in device.behind.items():
            yield from wrong_behind(device, author, theirs)


def wrong_behind(device: DeviceState, author: VmSession, needs: Needs) -> Iterator[str]:
    """The contradictions in `behind`, the needs of a session's instructions that wait for other nodes."""
    order = [one.admitted for one in needs.needs]
    if not order:
        yield f"{device.name} has no instruction in `behind` for session {author.id}, but a list for it"
    if order != sorted(order) or any(one.retired or one.author is not author or not one.remote for one in needs.needs):
        what = f"retired, foreign, local or unordered instructions in `behind` for session {author.id}"
        yield f"{device.name} has {what}: {list(needs.needs)}"
    if twice := [one for one in needs.needs if one in device.unreserved]:
        yield f"{device.name} has instructions both in `behind` and in `unreserved`: {twice}"


def accounts_add_up(census: Census) -> Iterator[str]:
    """A session's account has the bytes of the storages that are charged to it."""
    directory = census.engine.directory
    charged: Counter[int] = Counter()
    for storage in census.storages:
        if storage.account is not None and storage.nbytes > 0:
            charged[id(storage.account)] += storage.nbytes
    for session in directory.sessions.values():
        account = session.account
        if account.bytes != charged[id(account)]:
            found = charged[id(account)]
            yield f"session {session.id} is charged {account.bytes} bytes, but its storages have {found} bytes"


def shares_add_up(census: Census) -> Iterator[str]:
    """On a device with a ceiling, a session's share is the bytes of its storages' copies there, plus the upper bounds
    of its results whose size depends on data."""
    engine = census.engine
    held: Counter[tuple[int, str]] = Counter()
    for storage in census.storages:
        for copy in storage.current():
            if copy.device.ceiling and storage.account is not None and copy.nbytes > 0:
                held[id(storage.account), copy.device.name] += copy.nbytes
    for instruction in engine.live.values():
        if instruction.device.ceiling and instruction.max_bytes:
            held[id(instruction.session.account), instruction.device.name] += instruction.max_bytes
    for session in engine.directory.sessions.values():
        for device, nbytes in session.account.shares.items():
            found = held[id(session.account), device.name]
            if nbytes != found:
                yield f"session {session.id} has a share of {nbytes} bytes of {device.name}, but {found} bytes there"


# -- instructions ------------------------------------------------------------------------------------------------------


def edges_are_counted(census: Census) -> Iterator[str]:
    """`hard` counts an instruction's live sources by hard edges, and `soft` has those by soft edges."""
    hard: Counter[Instruction] = Counter()
    soft: dict[Instruction, set[Instruction]] = {}
    for source in census.live:
        for dependent, is_hard in source.dependents.items():
            if dependent.retired:
                yield f"{dependent!r} has retired before its source {source!r}"
            if is_hard:
                hard[dependent] += 1
            else:
                soft.setdefault(dependent, set()).add(source)
    for instruction in census.live:
        sources = soft.get(instruction, set())
        if (instruction.hard, set(instruction.soft)) != (hard[instruction], sources):
            noted = f"`hard` {instruction.hard} and `soft` {list(instruction.soft)}"
            yield f"{instruction!r} has {noted}, but {hard[instruction]} hard sources and the soft ones {sources}"


def proceeding_instructions_are_queued(census: Census) -> Iterator[str]:
    """Each instruction that can proceed is in a queue, so that the scheduler does not forget it."""
    scheduler = census.engine.scheduler
    dispatcher = scheduler.dispatcher
    waiting = {one for device in census.engine.tiers.values() for _, one in device.waiting}
    in_line = {one for session in sessions_of(census) for queue in session.queues.values() for one in queue.waiting}
    ready, doomed = set(dispatcher.ready), set(dispatcher.doomed)
    for instruction in census.live:
        status = instruction.status
        free = not (instruction.hard or instruction.soft)
        if (status is Status.DOOMED) != (status in PENDING and instruction.error is not None):
            yield f"{instruction!r} has the error {instruction.error!r}, which does not agree with its status"
        elif status is Status.DOOMED and free and instruction not in doomed:
            yield f"{instruction!r} is DOOMED and has no open edges, but is not in the queue of doomed instructions"
        elif status is Status.WAITING and free and not instruction.pending:
            yield f"{instruction!r} is WAITING, but has no open edges and no pending metas"
        elif status is Status.READY and instruction not in ready | waiting | in_line:
            yield f"{instruction!r} is READY, but in no queue"
        elif status is Status.EXECUTED and not instruction.soft and instruction not in waiting | ready:
            yield f"{instruction!r} is EXECUTED and has no open edges, but is in no queue"


def sessions_of(census: Census) -> set[VmSession]:
    """All sessions that may have live instructions: open ones, closed ones, and the system session."""
    directory = census.engine.directory
    leaving = (gone.session for gone in directory.leaving)
    return {*(one.author for one in census.live), *directory.sessions.values(), *leaving}


def streams_are_counted(census: Census) -> Iterator[str]:
    """`queued` of a stream, and of each session's queue on it, counts the instructions that are dispatched but not
    reported; the dispatcher counts each stream's backlog."""
    queued: Counter[object] = Counter()
    for instruction in census.live:
        if instruction.status is Status.DISPATCHED and instruction.queue is not None:
            queued[instruction.queue] += 1
            queued[instruction.stream] += 1
    for device in census.engine.tiers.values():
        for stream in device.streams:
            if stream.queued != queued[stream]:
                yield f"{stream.name} has `queued` {stream.queued}, but {queued[stream]} dispatched instructions"
    backlog: Counter[object] = Counter()
    for session in sessions_of(census):
        for stream, queue in session.queues.items():
            backlog[stream] += len(queue.waiting)
            if queue.queued != queued[queue]:
                what = f"`queued` {queue.queued} on {stream.name}"
                yield f"session {session.id} has {what}, but {queued[queue]} dispatched instructions there"
    counted = {stream: one.count for stream, one in census.engine.scheduler.dispatcher.backlog.items() if one.count}
    if counted != {stream: count for stream, count in backlog.items() if count}:
        yield f"the dispatcher counts the backlogs {counted}, but the sessions' queues have {dict(backlog)}"


def live_instructions_are_listed(census: Census) -> Iterator[str]:
    """Every live instruction is in `live` of its session, and of each device whose memory it accesses."""
    by_session: Counter[object] = Counter()
    for instruction in census.live:
        if instruction.retired:
            yield f"{instruction!r} has retired, but is in `live` of the engine"
        by_session[instruction.session] += 1
        for device in {copy.device for copy in instruction.reads + instruction.writes}:
            if instruction not in device.live:
                yield f"{instruction!r} accesses memory of {device.name}, but is not in `live` of the device"
    for session in census.engine.directory.sessions.values():
        if len(session.live) != by_session[session]:
            found = by_session[session]
            yield f"session {session.id} has {len(session.live)} instructions in `live`, but {found} are live"
    for device in census.engine.tiers.values():
        order = [instruction.admitted for instruction in device.live]
        if order != sorted(order):
            yield f"{device.name} has `live` out of program order"


def name(storage: Storage) -> str:
    """The text for a storage in a violation."""
    return f"<storage of {storage.nbytes} bytes, copies {storage.current()}>"


CHECKS: tuple[Callable[[Census], Iterator[str]], ...] = (
    holders_are_counted,
    sharers_are_counted,
    maps_hold_current_copies,
    uses_are_counted,
    access_lists_are_live,
    stale_copies_without_uses_have_no_buffer,
    current_copies_are_candidates,
    memory_adds_up,
    needs_are_of_live_instructions,
    accounts_add_up,
    shares_add_up,
    edges_are_counted,
    proceeding_instructions_are_queued,
    streams_are_counted,
    live_instructions_are_listed,
)
