"""How much is asked of a daemon, and how often: its answers may take `SHARE` of its time, whatever it does.

A daemon says how long it took to collect an answer. To encode and to send it takes up to half of that again, and the
question itself a third of a millisecond. So pauses follow from what answers cost, and where pauses get long, answers
get smaller. Questions without such a figure count
with the time until their answer was there, in which the daemon has mostly done something else.
"""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.015  # of the daemon's time, for records
RARE_SHARE: Final = 0.005  # for what is looked at rarely
SENT: Final = 1.5  # times as long as collecting takes it to answer
ASKED: Final = 0.0005  # seconds that a question takes
SHORTEST, LONGEST, RARELY = 0.25, 1.0, 2.0  # seconds
FEWEST, MOST = 100, 4000  # records of an answer


class PollingPace:
    """`most`: how many records the next answer may have."""

    def __init__(self) -> None:
        self.most = MOST

    def after(self, spent: float, *, full: bool) -> float:
        """The pause after an answer that the daemon collected in so many seconds. `full`: there was more to tell."""
        pause = (spent * SENT + ASKED) / SHARE
        if pause > LONGEST:
            self.most = max(FEWEST, int(self.most * LONGEST / pause))
        elif full and pause < LONGEST / 2:
            self.most = min(MOST, 2 * self.most)
        return max(SHORTEST, pause)


def rare_pause(took: float) -> float:
    """The pause after answers for which one has waited so many seconds."""
    return max(RARELY, took / RARE_SHARE)
