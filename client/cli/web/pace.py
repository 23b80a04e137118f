"""The size and the rate of questions to a daemon: answers may take `TIME_SHARE` of its time, however busy it is.

A daemon reports the time that it took to collect an answer. Encoding and sending take up to half of that again, and the
question itself a third of a millisecond. So pauses follow from the cost of answers, and if pauses get long, answers are
made smaller. Questions without such a report count with the time until their answer, in which the daemon has mostly
done other work.
"""

from __future__ import annotations

from typing import Final

TIME_SHARE: Final = 0.015  # of the daemon's time, for records
RARE_TIME_SHARE: Final = 0.005  # for figures that are asked for rarely
ANSWER_COST: Final = 1.5  # the time of an answer, in multiples of the time of collecting it
QUESTION_COST: Final = 0.0005  # seconds that a question takes
MIN_PAUSE, MAX_PAUSE, RARE_PAUSE = 0.25, 1.0, 2.0  # seconds
MIN_RECORDS, MAX_RECORDS = 100, 4000  # records of an answer


class PollingPace:
    """The pace of questions. `most`: the limit of records in the next answer."""

    def __init__(self) -> None:
        self.most = MAX_RECORDS

    def after(self, spent: float, *, full: bool) -> float:
        """The pause after an answer that the daemon collected in `spent` seconds. `full`: there were more records."""
        pause = (spent * ANSWER_COST + QUESTION_COST) / TIME_SHARE
        if pause > MAX_PAUSE:
            self.most = max(MIN_RECORDS, int(self.most * MAX_PAUSE / pause))
        elif full and pause < MAX_PAUSE / 2:
            self.most = min(MAX_RECORDS, 2 * self.most)
        return max(MIN_PAUSE, pause)


def rare_pause(took: float) -> float:
    """The pause after answers that took `took` seconds to arrive."""
    return max(RARE_PAUSE, took / RARE_TIME_SHARE)
