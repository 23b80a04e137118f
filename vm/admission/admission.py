"""Admission turns the messages of a session into instructions, in program order, with one handler for each kind.

Admission never waits. A message that cannot be admitted (unknown id, wrong metas, cancelled session) still defines
its outputs, poisoned with the error, so that later messages can refer to these outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import length_hint
from typing import Any

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.programs.builder import MAX_STEPS
from ...interpreter.schema.infer import InferCache
from ...interpreter.wire.forms import LIMITED_FIELDS, check_group, decode_message, new
from ...interpreter.wire.message_kinds import ATOMIC, CALL, FETCH, LOCATION, RELEASE, RUN, SYNC, WAIT
from ...interpreter.wire.messages import DECLARATIONS, Atomic, NamedMessage, Query, Restart
from ..model.device_state import DeviceState
from ..model.directory import Directory
from ..model.session import VmSession, rest_of_run
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .handlers import Handler, Handlers
from .inline import END, FULL
from .quotas import check_fields
from .rejection import refusal_of

OPS = frozenset((CALL, RELEASE))
# The client writes all fields of these messages by itself, so a trusted session's are not checked again.
PLAIN = OPS | {FETCH, LOCATION, RUN, SYNC, WAIT}

# Answers a question about the machine: (session, what, arguments).
Answer = Callable[[VmSession, str, Sequence[Any]], Any]


class Admission(Handlers):
    """Admits messages. One per engine, called on the driving thread.

    Set by the runtime: `answer`, which answers questions, and `holders`, which names the holders of a device's memory.
    """

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory, infer: InferCache) -> None:
        super().__init__(scheduler, residency, directory, infer)
        self.answer: Answer = refuse_question
        self.holders: Callable[[DeviceState], str] = no_holders
        self.handlers |= {Atomic: self.atomic, Restart: self.restart, Query: self.query}
        for kind in LIMITED_FIELDS:
            self.handlers[kind] = within_limits(self.handlers[kind])
        dispatcher = scheduler.dispatcher
        run_inline = self.inline.run_and_leave if scheduler.launching else self.inline.run
        due = scheduler.endings, scheduler.wanted
        self._steps = (run_inline, scheduler.bound, dispatcher.ready, dispatcher.dispatch_ready, *due)

    def take(self, session: VmSession, arrays: Iterable[Sequence[Any]]) -> bool:
        """Admit messages, and dispatch ready instructions after each, so that the next message may find them done.

        Return True once all messages are admitted. Return False after a RUN that must be unfolded, which the caller
        does next (`rest_of_run`), and where the session has launched as far ahead of its device as it may.
        """
        run_inline, bound, ready, dispatch_ready, endings, wanted = self._steps
        scheduler, trusted, unfolding = self.scheduler, session.trusted, session.unfolding
        rest = iter(arrays)
        while (array := run_inline(session, rest)) is not END:
            if array is FULL:
                return False
            if trusted and array[0] == ATOMIC and self.take_ops(session, array[1]):
                scheduler.latest = scheduler.clock()
                continue
            try:
                own = trusted and array[0] in PLAIN
                message = new(DECLARATIONS[array[0]], array[1:]) if own else decode_message(array)
                self.handlers[type(message)](session, message)
            except Exception as error:  # no message of a client may stop the others
                refused = refusal_of(array, error)
                if refused is None:
                    raise  # a bug of the engine, which has stopped in the middle of a step
                self.rejection.refuse(session, array, refused)
                self.nodes.refused(session, array, refused)
            bound.clear()
            if ready:
                dispatch_ready()
            while endings or wanted:
                self.conclude()
                if ready:
                    dispatch_ready()
            scheduler.latest = scheduler.clock()
            if session.unfolding is not unfolding or session.flooded:
                return False
        return True

    def conclude(self) -> None:
        """Perform the actions at the ends of instructions: answer, count, release, continue waiting work. Then
        make the room that other instructions want."""
        endings, wanted = self.scheduler.endings, self.scheduler.wanted
        while endings or wanted:
            if endings:
                then, instruction = endings.popleft()
                then(instruction)
            else:
                self.residency.late_room.make(wanted.popleft(), self.holders)

    def take_ops(self, session: VmSession, messages: Sequence[Any]) -> bool:
        """Admit an atomic group of calls and releases from this process, without the checks that other messages need.

        Return False, with nothing admitted, for any other group, and if durable names need a note of the changes.
        """
        if self.names.directory.durable:
            return False
        for array in messages:
            if array[0] not in OPS:
                return False
        rest = iter(messages)
        while length_hint(rest):
            self.take(session, rest)
        return True

    def atomic(self, session: VmSession, message: Atomic) -> None:
        """Admit a group of messages with no message of another session in between.

        A malformed message refuses the whole group. A message that is refused for another reason, or whose instruction
        fails, leaves the rest of the group unaffected.
        """
        check_group(message.messages)
        self.routines.check_group(session, message.messages)
        rest = iter(message.messages)
        watched = self.durable.watch(session, message.messages)
        self.routines.begin_group()
        try:
            while length_hint(rest) or session.in_run():
                self.take(session, rest_of_run(session, MAX_STEPS) if session.in_run() else rest)
        finally:
            self.routines.end_group()
            if watched is not None:
                self.durable.note_changed(watched)

    def restart(self, session: VmSession, message: Restart) -> None:
        """Accept the session's instructions again, unless the session was cancelled after it sent this message."""
        if message.generation == session.generation:
            self.cancellation.restart(session)

    def query(self, session: VmSession, message: Query) -> None:
        """Answer a question about the machine at this point in program order."""
        request = message.request
        if self.scheduler.launching:
            self.scheduler.fences.fence_all()
        try:
            answer = self.answer(session, message.what, message.arguments)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "query")
            return
        session.reply(request, answer, None)


def within_limits(handler: Handler) -> Handler:
    """The handler, preceded by a check of the message's fields against the session's limits."""

    def check_and_handle(session: VmSession, message: NamedMessage) -> None:
        check_fields(session.limits, message)
        handler(session, message)

    return check_and_handle


def refuse_question(_session: VmSession, what: str, _arguments: Sequence[Any]) -> Any:
    """Refuse every question; a runtime puts its own function in place of this one."""
    raise ProtocolError(f"this machine does not answer questions about {what!r}")


def no_holders(_device: DeviceState) -> str:
    """The empty clause, for engines that do not know the holders of a device's memory."""
    return ""
