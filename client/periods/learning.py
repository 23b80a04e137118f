"""Learns which calls repeat, from calls that are sent one by one.

A form of calls becomes a period when it occurs at least twice in two rounds of a loop and a program can represent it.
A form that no program can represent is not tried again; the form of a period that was often begun but not completed is
tried again after further occurrences. A session in which nothing repeats is searched only a quarter of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from ...interpreter.errors import TensordError
from ...interpreter.wire.message_kinds import ATOMIC, SIGNATURE
from ...interpreter.wire.messages import Message
from ..linking.linked import shown_name
from ..locations.locations import Locations
from .catalogue import Catalogue
from .history import BREAK, INPUTS, MAX_CALLS, OUTPUTS, CallSequence, History, line_in, signature_in, tokens_of
from .linking import PeriodBuilder
from .period import Period, PeriodForm, form_of

SEARCH_WINDOW: Final = 2 * MAX_CALLS  # messages without progress after which the search pauses
MAX_GIVEN_UP: Final = 64  # forms that are remembered as given up
NEVER: Final = 1 << 60  # more occurrences than a session has calls


class Learning:
    """Finds periods for a catalogue, and forgets them. `signatures`: SIGNATURE messages by number.

    `_given_up`: how often each form must still occur before it is tried again. `_since_progress`: messages sent
    since a period was found or sent, or a signature was new. `_release` takes the id of a routine.
    """

    def __init__(self, periods: Catalogue, locations: Locations, release: Callable[[int], None]) -> None:
        self.signatures: dict[int, Message] = {}
        self._given_up: dict[PeriodForm, int] = {}
        self._history = History()
        self._locations = locations
        self._periods = periods
        self._release = release
        self._since_progress = 0

    def interrupt(self) -> None:
        """Note that a run was sent: calls before it and after it are not consecutive."""
        self._history.interrupt()

    def went_well(self) -> None:
        """Note that a period was sent as a run."""
        self._since_progress = 0

    def forget(self, period: Period, often: int = 0) -> None:
        """Forget a period, and learn its form again only after it has occurred `often` times."""
        self._periods.remove(period)
        for linked in period.programs.values():
            self._release(linked.id)
        if often:
            self._give_up(period.form, often)

    def learn(self, messages: Sequence[Message]) -> None:
        """Add messages that are sent one by one to the history, and make periods of the forms that repeat.

        After `SEARCH_WINDOW` messages without progress, the next three windows of messages are skipped.
        """
        self._since_progress += len(messages)
        if self._since_progress > SEARCH_WINDOW:
            if self._since_progress > 4 * SEARCH_WINDOW:
                self._since_progress = 0
            self._history.clear()
            return
        tokens = tokens_of(messages)
        if BREAK in tokens or self._locations.spans.used:
            messages, tokens = self._history.calls_in(messages, tokens)
        for distance, stretches in self._history.add(tokens, map(INPUTS, messages), map(OUTPUTS, messages)):
            if self._add_repeated(stretches):
                self._since_progress = 0
            else:
                self._history.give_up(distance)

    def _add_repeated(self, stretches: Sequence[CallSequence]) -> int:
        """Make periods of the forms that occur at least twice in two rounds (`stretches`); returns their number."""
        forms = Counter([form_of(stretch, self.signatures) for stretch in stretches])
        new = [form for form, count in forms.items() if count > 1 and self._is_new(form)]
        return sum(map(self._add, new))

    def _is_new(self, form: PeriodForm) -> bool:
        """Return whether the form is neither a known period, nor one that was given up and has not occurred often
        since."""
        if self._periods.has(form):
            return False
        often = self._given_up.get(form)
        if not often:
            return True
        self._given_up[form] = often - 1
        return False

    def _give_up(self, form: PeriodForm, often: int) -> None:
        """Do not learn a form until it has occurred `often` times."""
        self._given_up.pop(form, None)
        self._given_up[form] = often
        if len(self._given_up) > MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    def _add(self, form: PeriodForm) -> bool:
        """Make a period of a form; False if it cannot be a program."""
        period = Period(form, self.signatures)
        try:
            PeriodBuilder(period, self.signatures).program(tuple([True for _ in period.positions.made]))
        except TensordError:
            self._give_up(form, NEVER)
            return False
        period.name = shown_name(f"auto:{self._locations.line_of_site(line_in(form.tokens[0]))}")
        self._periods.add(period)
        self.limit()
        return True

    def limit(self) -> None:
        """Forget surplus periods."""
        while (surplus := self._periods.surplus()) is not None:
            self.forget(surplus)

    def note_signatures(self, batch: Sequence[Message]) -> None:
        """Note the meaning of signature numbers, and forget everything that used an earlier meaning."""
        for message in batch:
            if message[0] == ATOMIC:
                self.note_signatures(message[1])
            elif message[0] == SIGNATURE:
                self._since_progress = 0
                former = self.signatures.get(message[1])
                self.signatures[message[1]] = message
                if former is not None and former is not message:
                    self._outdated(message[1])

    def _outdated(self, number: int) -> None:
        """Forget everything with calls of that signature."""
        self._history.clear()
        self._given_up.clear()
        for period in self._periods:
            if any(signature_in(token) == number for token in period.form.tokens):
                self.forget(period)
