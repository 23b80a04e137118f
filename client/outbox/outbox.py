"""The outbox: the messages that a session has issued and not yet sent.

A batch is sent when it is full, before every wait, when a second heavy op joins it, or after some idle milliseconds.
For another process, batches adapt their size: an op that is issued after a pause is sent at once, and the more ops
follow without a pause, the more of them are sent together (1, 8, 64, 256 messages). A program that issues an op and
asks for its result, again and again, would pay for two messages instead of one; so its first few small ops wait for the
question and are sent with it (docs/decisions/0012). Handles dropped by then are released in the batch (`releases`). A
group (`atomic`) is sent as one message when its block ends.

Threads. `lock` guards the messages and the session's tables. The lock is re-entrant, since a signal handler may issue
ops on the thread that has it. No thread waits while it holds the lock. A message and its handle are added in a region,
or the handle first (`interpreter/concurrency/interrupts`): an exception of a signal handler finds no message without
its handle. An atomic block holds the lock from its first line to its last, so the messages of other threads come after
the group. A handle may be dropped anywhere, also inside the lock, so its finaliser only puts the id on a
`queue.SimpleQueue`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from ...interpreter.concurrency.finalisers import LastReference
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ConnectionLost, ProtocolError, TensordError, without_frames
from ...interpreter.wire.message_kinds import RELEASE
from ...interpreter.wire.messages import KINDS, Atomic, NamedMessage, encode_message
from ..locations.locations import Locations, located, user_line
from ..process.forks import FORKS
from ..transport.interface import FORKED, ClosedTransport, Waker
from ..transport.replies import Reply
from .atomic import AtomicBlock
from .batches import AtomicGroup, Closed
from .callbacks import SLICE, Lock
from .current import capture_of, refuse_captured
from .host_results import HostResultHints
from .releases import add_releases, releases

BATCH = 256
GROWTH = 8
PART_OF_ROUTINE = "some ops of a routine cannot be an atomic group (put the whole call into a block)"
PROMPT = 0.0005  # seconds after which a question no longer counts as following an op at once

# Builds a question from its request number and the number of the user's line.
Build: TypeAlias = Callable[[int, int], NamedMessage]


class Outbox:
    """The unsent messages of one session, and its transport.

    `scalars`: a signature's number -> flags for its operands: a scalar, not an id. `captured`: the ids of tensors that
    routines capture, which a run uses without naming them. `files`: numbers of files that are being loaded.
    """

    def __init__(self, transport: Any, frames: int | None = None) -> None:
        self.transport = transport
        self.waker: Waker = transport.waker
        self.lock: Lock = (lock := threading.RLock())
        self.messages: list[list[Any]] = []  # lists, since a release may still be marked on a call
        self.scalars: dict[int, Sequence[bool]] = {}
        self.captured: set[int] = set()
        self.files: set[int] = set()
        self.locations = Locations(lock, frames)
        self.outboxes: WeakValueDictionary[int, Outbox] = transport.outboxes
        self.outboxes[id(self)] = self
        self.ids = 0  # the newest id: ids rise and are never reused
        self.heavy = False
        self.host_results: HostResultHints | None = None  # set by the first block
        self._released: SimpleQueue[int | LastReference] = SimpleQueue()  # ids of dropped handles, and exports
        self.release = self._released.put
        transport.memory.release_exports_with(self.release)
        transport.tell_loss_to(self.lost)
        transport.flush_with(self.idle_flush)
        self._first = 1 if transport.eager else BATCH
        self.limit = self._first  # messages at which the next batch is sent
        self._expects = False  # a question is expected before a batch is sent
        self._left = 0.0  # when a full batch was last sent
        self._flushes = 0
        self._seen_flushes = -1
        FORKS.inherited.add(self)
        self._before: list[list[Any]] | None = None  # the messages before a group
        self.depth = 0  # nesting of atomic blocks
        self._riding = True  # releases may be marked on the calls of this batch
        if transport.eager:  # no message stays unsent, but handles will be dropped
            self.waker.rouse()

    def enter(self) -> Lock:
        """Take the lock, in a region; the caller releases it. An exception from outside ends the wait for another
        thread's block within `SLICE`."""
        while not (lock := self.lock).acquire(timeout=SLICE):
            with SHIELD.interruptible:
                pass
        return lock

    def new_id(self) -> int:
        """The next id; the caller holds the lock."""
        self.ids += 1
        return self.ids

    @contextmanager
    def numbered(self) -> Iterator[int]:
        """A number for a file, which is free again afterwards."""
        number = 0
        try:
            with self.lock, SHIELD:
                number = min(set(range(1, len(self.files) + 2)) - self.files)
                self.files.add(number)
            yield number
        finally:
            self.files.discard(number)

    def join(self, messages: list[list[Any]]) -> None:
        """Add messages to the group of this thread's atomic block: all, or none if they do not fit."""
        group = self.messages
        if type(group) is AtomicGroup:
            group.add(messages)
        else:
            group.append(messages[0])  # closed inside the block: this raises the reason

    def appended(self) -> None:
        """Handle an added message: send a full batch, or make the background send it soon."""
        size = len(self.messages)
        if self.depth:
            return
        if size >= self.limit and not (self._expects and size < GROWTH and not self.heavy):
            self.limit = min(self.limit * GROWTH, BATCH)
            self.flush()
            self._left = monotonic()
        elif size and not self.waker.awake:
            self.waker.rouse()

    def rouse(self) -> None:
        """Make the background release dropped handles soon. Raises nothing."""
        if not (self._released.empty() or self.waker.awake):
            self.waker.rouse()

    def make_way(self) -> None:
        """Prepare for a heavy op: an earlier heavy op is sent first, and starts while this one is prepared.

        The newest heavy op stays unsent until the next one comes, since its caller drops operands only after the call.
        So their release can ride on the op, and the result can take over their memory.
        """
        if self.heavy:
            self.flush()
        self.heavy = True

    def flush(self, *, patient: bool = True) -> None:
        """Send all unsent messages. Never waits for results; if `patient`, waits until the machine accepts more."""
        with self.lock:
            transport = self.transport
            sent = self.send()
        if sent and patient:
            transport.await_credit()

    def flush_if_free(self) -> bool:
        """Send all unsent messages; False if another thread has the lock, perhaps for a whole group."""
        with SHIELD:
            if not self.lock.acquire(blocking=False):
                return False
            try:
                self.send()
            finally:
                self.lock.release()
        return True

    def send(self) -> bool:
        """Send the unsent messages, except an unfinished group; returns whether there were any. The caller holds the
        lock.

        Runs in a region: an exception between taking the batch and handing it over would lose the batch.
        """
        if self.depth:
            return False
        with SHIELD:
            return self._send_all()

    def _send_all(self) -> bool:
        """`send`, called in a region and outside of blocks."""
        batch, self.messages = self.messages, Closed(self.messages.error) if type(self.messages) is Closed else []
        self.heavy = self._expects = False
        self._flushes += 1
        if not self._released.empty():
            self._add_releases(batch)
        return self._deliver(batch)

    def _deliver(self, batch: list[list[Any]]) -> bool:
        """Send a batch after the lines that it names, and then its hints; returns whether there was anything to
        send."""
        if self.host_results is not None:
            batch += self.host_results.hints(batch, not self.messages)
        if self.locations.unsent:
            unsent, self.locations.unsent = self.locations.unsent, []
            batch[:0] = unsent
        if batch:
            try:
                self.transport.send(batch)
            except ProtocolError:  # the machine runs further up this stack: nothing is lost
                self.messages[:0] = batch
                raise
            except ConnectionLost as error:
                self.lost(error)
                raise
        return bool(batch)

    def renumber(self) -> None:
        """Send all calls with a signature's number before the number is reused. The caller holds the lock."""
        self._riding = not self.depth  # when a group is sent, the numbers of its calls may denote other signatures
        self.send()

    def atomic(self) -> AbstractContextManager[None]:
        """Send the messages issued inside as one at the end, also if the block raises."""
        refuse_captured(self, PART_OF_ROUTINE)
        return AtomicBlock(self)

    def grouped(self) -> AbstractContextManager[None]:
        """Make the messages issued inside travel as one, at their position in the batch, which is sent when it is due.

        Inside an atomic block they belong to that block.
        """
        return AtomicBlock(self, leaves=False)

    def begin_group(self, *, leaves: bool = True) -> None:
        """Begin an atomic block, perhaps a nested one. The caller holds the lock."""
        if not self.depth:
            if leaves:
                self.send()
            else:
                self._before = self.messages
            self.messages = self.messages if type(self.messages) is Closed else AtomicGroup()
        self.depth += 1

    def end_group(self) -> bool:
        """End an atomic block, and send it unless it is nested; returns whether anything was sent."""
        self.depth -= 1
        if self.depth or type(self.messages) is Closed:  # closed inside
            return False
        if self._before is None:
            self._send_group()
            return True
        self._join_group()
        return False

    def _join_group(self) -> None:
        """Append the group to the earlier messages. It is sent now if signature numbers were reused inside."""
        group, before, self._before = self.messages, self._before, None
        self.messages = [] if before is None else before
        if len(group) > 1:
            self.messages.append(encode_message(Atomic(list(group))))
        else:
            self.messages.extend(group)
        if not self._riding:
            self._send_riding_again()
        self.appended()

    def _send_riding_again(self) -> None:
        """Send a group; calls after it use the numbers of their own signatures."""
        try:
            self.send()
        finally:
            self._riding = True

    def _send_group(self) -> None:
        group = self.messages
        if not self._released.empty():
            self._add_releases(group)
        releases = [message for message in group if message[0] == RELEASE]
        inside = [message for message in group if message[0] != RELEASE]
        self.messages = [encode_message(Atomic(inside)), *releases] if inside else releases
        self._send_riding_again()

    def _add_releases(self, batch: list[list[Any]]) -> None:
        self._release(batch, self._dropped())

    def _dropped(self) -> set[int]:
        """Take the ids of dropped handles."""
        take = self._released.get_nowait
        dropped: set[int] = set()
        with suppress(Empty):  # a signal handler on this thread may send them first
            for _ in range(self._released.qsize()):
                released = take()
                id_ = released if isinstance(released, int) else released.what(released)
                if id_:
                    dropped.add(id_)
        return dropped

    def _release(self, batch: list[list[Any]], released: set[int]) -> None:
        if self.host_results is not None:
            self.host_results.released(released)
        behind = released & self.captured if self._riding else released
        self.captured -= behind
        if self._riding:
            add_releases(batch, released - behind if behind else released, self.scalars)
        if behind:
            list.extend(batch, releases(behind))  # also to a full group

    def idle_flush(self) -> bool:
        """Send messages unsent since the last call; returns whether there were any. The transport calls this
        repeatedly."""
        hints = self.host_results is not None and bool(self.host_results.due)
        if not self.messages and self._released.empty() and not hints:
            self.limit = self._first
            return False
        with SHIELD:
            if self._flushes == self._seen_flushes and self.lock.acquire(blocking=False):
                try:
                    self.send()
                except ConnectionLost:
                    return False
                finally:
                    self.lock.release()
            self._seen_flushes = self._flushes
        return True

    def tell(self, build: Callable[[int], NamedMessage]) -> Reply | None:
        """Send a message; returns its reply. In an atomic block, only add the message; None."""
        with self.lock:
            refuse_captured(self, "nothing can be published")
            if self.depth:
                self.messages.append(encode_message(build(0)))
                return None
            return self.ask(lambda request, _: build(request), located=False)

    def ask(self, build: Build, *, located: bool = True) -> Reply:
        """Send a question after all unsent messages. `build` gets its request and location, 0 unless `located`."""
        return self.ask_all([build], located=located)[0]

    def answered(self, build: Build, timeout: float | None = None, *, located: bool = True) -> Any:
        """`ask` a question, and wait for the answer."""
        return self.await_reply(self.ask_all([build], located=located)[0], timeout)

    def ask_all(self, builds: Sequence[Build], *, located: bool = True) -> list[Reply]:
        """`ask` several questions in one batch. The caller's caller belongs to this package, too."""
        replies: list[Reply] = []
        expects = self._expects or monotonic() - self._left < PROMPT
        with self.lock, SHIELD:
            self.refuse_inside()
            location = self.locations.here(3) if located else 0
            for build in builds:
                number, reply = self.transport.request()
                question = build(number, location)  # not a group
                self.messages.append([KINDS[type(question)], *question])
                replies.append(reply)
            self._send_all()  # a question needs no credit
            self.limit = self._first
            self._expects = expects
        return replies

    def answers(self) -> bool:
        """Return whether questions can be asked now: not in an atomic block or a capture, nor after the session's
        end."""
        return not (self.depth or self.transport.lost or capture_of(self) is not None)

    def is_inside(self) -> bool:
        with SHIELD:
            if not self.lock.acquire(blocking=False):
                return False
            try:
                return bool(self.depth)
            finally:
                self.lock.release()

    def refuse_inside(self) -> None:
        """Raise an error at the user's line in an atomic block or a capture. The caller holds the lock."""
        refuse_captured(self, "nothing can be asked, waited for or published")
        if self.depth:
            raise ProtocolError(
                "inside atomic() nothing has been sent yet, so nothing can be asked or waited for: "
                "do that after the block",
                location=user_line(),
            )

    def await_reply(self, reply: Reply, timeout: float | None = None) -> Any:
        """The reply's value; raises its error, or TimeoutError."""
        if not reply.done and not self.transport.wait(reply, timeout):
            raise TimeoutError(f"no result within {timeout:g} s")
        if reply.error is None:
            return reply.value
        try:
            raise reply.error.reraisable()
        except TensordError as error:
            located(error)  # unless it has a line: then an earlier call caused the error, not the request
            raise

    def stats(self) -> dict[str, Any]:
        """The outbox's own counters: none."""
        return {}

    def close(self) -> None:
        """End the session; every later use raises ConnectionLost."""
        transport = self.transport
        transport.ending()
        with SHIELD:
            lock = self.enter()
            try:
                self.transport = ClosedTransport(transport.devices)
                self.messages = Closed()
            finally:
                lock.release()
            transport.close()

    def lost(self, error: TensordError) -> None:
        """Refuse further messages, because the machine is gone. Called inside any lock; a concurrent message may slip
        in."""
        if type(self.messages) is not Closed:
            self.messages = Closed(without_frames(error))

    def inherit(self) -> None:
        """Close in a forked child: the session belongs to the parent, and a lock of another thread would stay
        locked."""
        self.lock = self.locations.lock = threading.RLock()
        self.transport = ClosedTransport(self.transport.devices, FORKED)
        self.messages = Closed(ConnectionLost(FORKED))
