"""An outbox that finds periods in its messages, and sends a run of a program in place of each.

Theory of operation. Calls are issued and queued as in any outbox. Calls that are sent op by op go through the history,
which finds repetitions. Once a period is known, its calls are held back from the first one on, until the call after the
last one comes (by then the handles of intermediate values have been dropped). If a question, another thread's question,
an idle moment or a group needs the batch earlier, it is sent with the period complete or incomplete. When the batch is
sent, the calls of each complete period are replaced by one RUN message, if they have its form. New tensors that still
have a handle, or that a later message uses, are the run's results. All other messages are sent unchanged. A held call
is an ordinary unsent message to all other parts of the session.

A period's program is linked after everything that was issued, since ids rise, and once for each set of results. It is
run once the machine has answered that it accepted the program: if a quota is exceeded, calls are sent op by op.

Ids. The machine numbers a run's inner values from its newest id on, below the run's results (`vm/routines`), but the
client has numbered the results before it knows of a run. So a gap is left before a call with which a period may begin:
`ids` jumps by as many as the longest period makes. A run without a gap is sent op by op.

Threads. The outbox's lock guards everything here. A signal handler that interrupts the replacement on its own thread
may issue, but not send: the order of messages would not be that of their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Final

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ProtocolError
from ...interpreter.wire.message_kinds import ATOMIC, CALL, RUN, SIGNATURE
from ..locations.locations import user_line
from ..outbox.outbox import Outbox
from .catalogue import Catalogue
from .history import KIND, LOCATION, newest_in, tokens_of, used_in
from .learning import Learning
from .linking import LinkedPeriod, link
from .period import Period, Results

CHECK_INTERVAL: Final = 64  # messages between two checks of held messages
MAX_MISSES: Final = 8  # times in a row that a period may begin without becoming a run
MAX_PROGRAMS: Final = 8  # programs linked for one period
SIGNED: Final = frozenset((SIGNATURE, ATOMIC))  # kinds of messages that hold signatures
OUTPUTS_OF_RUN: Final = 4  # their position in the message


class PeriodicOutbox(Outbox):
    """The outbox described above. `periods`: the known ones; `runs` and `ops_in_runs` count what was sent as runs.

    `_complete`: the complete periods among the messages, with their starts; `_period` has begun at `_start`. The first
    `_seen` messages were checked. `_usual_limit`: the batch's limit as in any outbox; it is taken over from `limit`
    when this differs from `_set_limit`, which was set last. `_still_used`: dropped handles that held messages use.
    `_newest`: no id that was sent is above it.
    """

    def __init__(self, transport: Any, frames: int | None = None) -> None:
        self.periods = Catalogue()
        self.runs = self.ops_in_runs = 0
        self._due: list[tuple[Period, Results]] = []  # to be linked
        self._still_used: set[int] = set()
        self._newest = 0
        self._sending = False
        self._usual_limit = self._set_limit = 0
        self._period: Period | None = None
        self._start = self._seen = 0
        self._complete: list[tuple[int, Period]] = []
        super().__init__(transport, frames)
        self._learning = Learning(self.periods, self.locations, self.release)

    def stats(self) -> dict[str, Any]:
        """The number of known periods and of programs linked for them, and of ops sent as runs; and each period by
        itself, with the one sent last at the end."""
        with self.lock:
            rows = [
                {"name": each.name, "calls": len(each), "programs": len(each.programs), "runs": each.runs}
                for each in self.periods
            ]
            counts = {"known": len(rows), "programs": sum(len(each.programs) for each in self.periods)}
            return {"periods": {**counts, "runs": self.runs, "ops": self.ops_in_runs, "each": rows}}

    # -- holding back ----------------------------------------------------------------------------------------------

    def appended(self) -> None:
        """As in any outbox, but wait for the rest of a period that has begun."""
        if self._sending:  # a signal handler has interrupted the sending on this thread: the message is sent later
            return
        if not self._may_hold():
            super().appended()
            return
        with self.lock:
            if self.limit != self._set_limit:
                self._usual_limit = self.limit
            self._follow()
            sent = self._is_due() and self._send(self._end(*self._complete[-1]))
            held = self._schedule_check()
        if sent:
            self.transport.await_credit()
        if not held:
            self._append()
        elif not self.waker.awake:
            self.waker.rouse()

    def _append(self) -> None:
        """Act as any outbox: no period has begun. Check again after some messages, or after one that is no call."""
        if len(self.messages) >= self._usual_limit:
            self.limit = self._usual_limit
            super().appended()
            self._usual_limit = self.limit
        elif self.messages and not self.waker.awake:
            self.waker.rouse()
        with self.lock:
            messages = self.messages
            called = not messages or messages[-1][0] == CALL
            if not called:
                self._make_room()
            self._set_limit = self.limit = min(self._usual_limit, len(messages) + (CHECK_INTERVAL if called else 1))

    def make_way(self) -> None:
        """As in any outbox, unless the heavy op may belong to a period that has begun."""
        if self._sending:
            return
        if self.heavy and self._may_hold():
            with self.lock:
                self._follow()
                if self._schedule_check():
                    return
        super().make_way()

    def _may_hold(self) -> bool:
        """Return whether any period is known, and calls may be held back."""
        return bool(self.periods.starts) and not self.depth and type(self.messages) is list

    def _follow(self) -> None:
        """Check the messages since the last check for periods that begin, continue, or end."""
        messages, first = self.messages, self._seen
        tokens = tokens_of(messages[first:] if first else messages)
        self._seen = len(messages)
        at = 0
        while at < len(tokens):
            period = self._period
            if period is None:
                at = self.periods.next_start(tokens, at)
                if at < len(tokens):
                    self._period, self._start = self.periods.begun(tokens[at : at + 1]), first + at
                at += 1
                continue
            done = first + at - self._start
            expected = period.tokens[done : done + len(tokens) - at]
            if not expected:
                self._complete.append((self._start, period))
                self._period = None
            elif tokens[at : at + len(expected)] == expected:
                at += len(expected)
            else:
                at += next(n for n, token in enumerate(expected) if tokens[at + n] != token)
                self._period = self.periods.begun(tokens_of(messages[self._start : first + at + 1]))
                if self._period is None:
                    self._miss(period)

    def _end(self, start: int, period: Period) -> int:
        return start + len(period)

    def _is_due(self) -> bool:
        """Return whether a complete period is due: if the machine works concurrently with the program. Otherwise the
        batch may grow as usual."""
        if not self._complete:
            return False
        return self.transport.eager or self.heavy or len(self.messages) >= self._usual_limit

    def _schedule_check(self) -> bool:
        """Set when to check a begun period again; False if there is none."""
        if self._period is None:
            return False
        size, end = len(self.messages), self._end(self._start, self._period)
        if size in (self._start + 1, end):
            self._make_room()
        self._set_limit = self.limit = size + max(1, min(end - size, CHECK_INTERVAL))
        return True

    def _make_room(self) -> None:
        """Skip ids for the inner values of a run."""
        self.ids += self.periods.room

    def _miss(self, period: Period) -> None:
        """Note that a period began but was not completed; forget a period that often fails."""
        period.missed += 1
        if period.missed > MAX_MISSES and period in self.periods:
            self._learning.forget(period, MAX_MISSES)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _send_all(self) -> bool:
        """Send as any outbox does, with runs in place of complete periods."""
        return self._send(len(self.messages)) if type(self.messages) is list else super()._send_all()

    def _send(self, count: int) -> bool:
        """Send the first `count` messages."""
        with SHIELD:
            sent = self._deliver(self._made_ready(count))
            if self._may_hold():
                self._follow()
            return sent

    def _made_ready(self, count: int) -> list[list[Any]]:
        """Take the first `count` messages, with releases, and with runs in place of periods."""
        if self._sending:
            message = "a signal handler that interrupts the sending of messages may neither send nor wait"
            raise ProtocolError(message, location=user_line())
        self._sending = True
        try:
            if self.periods.starts:
                self._finish(count)
            batch, self.messages = self.messages[:count], self.messages[count:]
            self.heavy = self.heavy and bool(self.messages)
            self._expects = False
            self._flushes += 1
            return self._rewritten(batch)
        finally:
            self._sending = False

    def _finish(self, count: int) -> None:
        """Settle the begun period, if the first `count` messages are sent now."""
        self._follow()
        begun, self._period, self._seen = self._period, None, 0
        if begun is not None and self._start < count:
            period = self.periods.whole(tokens_of(self.messages[self._start : count]))
            if period is None:
                self._miss(begun)
            else:
                self._complete.append((self._start, period))

    def _rewritten(self, batch: list[list[Any]]) -> list[list[Any]]:
        whole, self._complete = self._complete, []
        dropped = self._still_used | self._dropped()
        if not SIGNED.isdisjoint(map(KIND, batch)):
            self._learning.note_signatures(batch)
        ready = self._replaced(batch, whole, dropped) if whole else batch
        if not whole:
            self._learning.learn(batch)
        if self._due:
            ready = [*ready, *self._remainder(), *self._link()]
        held = self.messages
        self._still_used = dropped & used_in(held) if held else set()
        if dropped:
            self._release(ready, dropped - self._still_used)
        if not held:
            self._newest = self.ids
            self._make_room()
        return ready

    def _remainder(self) -> list[list[Any]]:
        """Take the held messages, too: their ids are lower than those of a program that is sent next."""
        held, self.messages = self.messages, []
        self.heavy = False
        self._learning.learn(held)
        return held

    def _replaced(
        self, batch: list[list[Any]], whole: Sequence[tuple[int, Period]], dropped: set[int]
    ) -> list[list[Any]]:
        """The batch with runs in place of periods. The inner values of runs are removed from `dropped`."""
        ready: list[list[Any]] = []
        done = 0
        for start, period, values, gone in reversed(list(self._matched(batch, whole, dropped))):
            newest = newest_in(batch[done:start], self._newest)
            run = self._run(period, values, gone, newest)
            if run is not None:
                self._learning.learn(batch[done:start])
                self._learning.interrupt()
                ready += batch[done:start]
                ready.append([*run, LOCATION(batch[start])])
                dropped -= gone.difference(run[OUTPUTS_OF_RUN])
                done = start + len(period)
        self._learning.learn(batch[done:])
        if self.messages:
            self._newest = newest_in(batch[done:], self._newest)
        return ready + batch[done:]

    def _matched(
        self, batch: list[list[Any]], whole: Sequence[tuple[int, Period]], dropped: set[int]
    ) -> Iterator[tuple[int, Period, list[Any], set[int]]]:
        """The periods whose form the calls have, last first: start, values, and new tensors that nothing later uses."""
        later, behind = used_in(self.messages), len(batch)
        for start, period in reversed(whole):
            end = start + len(period)
            values = period.values(batch[start:end]) if period in self.periods else None
            if values is None:
                self._miss(period)
                continue
            later |= used_in(batch[end:behind])
            yield start, period, values, dropped.intersection(period.made(values)) - later
            later.update(period.outside(values))
            behind = start

    def _run(self, period: Period, values: list[Any], gone: set[int], newest: int) -> list[Any] | None:
        """The run in place of a period, without its location; None if the calls have to be sent one by one."""
        if period not in self.periods:  # replaced by another period that was found in this batch
            return None
        made = period.made(values)
        linked = self._program(period, tuple([id_ not in gone for id_ in made]))
        if linked is None:
            return None
        outputs = tuple(compress(made, linked.results))
        room = newest + len(made)
        if outputs and not room < outputs[0] <= outputs[-1] == max(outputs):
            return None
        self._newest = max((room, *outputs))
        self.periods.use(period)
        period.missed = 0
        period.runs += 1
        self._learning.went_well()
        self.runs += 1
        self.ops_in_runs += len(period)
        return [RUN, linked.id, period.outside(values), period.numbers(values), outputs, ()]

    # -- programs --------------------------------------------------------------------------------------------------

    def _program(self, period: Period, results: Results) -> LinkedPeriod | None:
        """A ready program of the period with at least these results; None if there is none yet."""
        exact: LinkedPeriod | None = period.programs.get(results)
        if exact is not None and exact.is_ready:
            return exact
        if exact is None:
            period.seen[results] = seen = period.seen.get(results, 0) + 1
            wanted = seen > 1 or not period.programs
            if wanted and (period, results) not in self._due:
                self._due.append((period, results))
        ready = [
            each
            for each in period.programs.values()
            if each.is_ready and all(has or not wants for has, wants in zip(each.results, results, strict=True))
        ]
        return min(ready, key=lambda each: sum(each.results), default=None)

    def _link(self) -> list[list[Any]]:
        """The messages that link the due programs."""
        due, self._due = self._due, []
        all_messages: list[list[Any]] = []
        for period, results in due:
            if period not in self.periods:
                continue
            if len(period.programs) >= MAX_PROGRAMS:
                period.seen.clear()
                self.release(period.programs.pop(next(iter(period.programs))).id)
            period.programs[results], messages = link(self, period, results, self._learning.signatures)
            all_messages += messages
        self._learning.limit()
        return all_messages
