"""Two ends find each other again after any break, in any order of noticing it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.streams.links.tcp.pairing import Pairing, Verdict


class End:
    """One end of a link. A connection is a list of one flag, true once either end has closed it. `sent`: the pairs of
    lives in which it was up."""

    def __init__(self, life: int) -> None:
        self.pairing = Pairing(life)
        self.out: list[bool] | None = None
        self.into: list[bool] | None = None
        self.sent: set[tuple[int, int]] = set()

    def look(self) -> None:
        """Close connections that no longer belong to the link."""
        if not self.pairing.has_out:
            close(self.out)
            self.out = None
        if not self.pairing.has_in:
            close(self.into)
            self.into = None
        if self.pairing.up:
            self.sent.add((self.pairing.own, self.pairing.peer))

    def breaks(self) -> None:
        if self.pairing.up:
            self.pairing.broke()
            self.look()

    def notices(self) -> None:
        """The end notices that the other end has closed a connection, by reading and writing, or gives up waiting."""
        if self.pairing.up and any(one is not None and one[0] for one in (self.out, self.into)):
            self.breaks()
        elif self.pairing.has_out and not self.pairing.up:
            self.pairing.gave_up()
            self.look()


def close(connection: list[bool] | None) -> None:
    if connection is not None:
        connection[0] = True


def dial(one: End, other: End, random: Random, halt: float) -> None:
    """`one` dials `other`; between the steps each end may break, notice, or dial itself."""

    def meanwhile() -> None:
        for end, peer in ((one, other), (other, one)):
            if random.random() < halt:
                moves: list[Callable[[], None]] = [end.breaks, end.notices, partial(dial, end, peer, random, halt / 2)]
                random.choice(moves)()

    if one.out is not None:
        return
    told, connection = one.pairing.own, [False]
    meanwhile()
    if other.pairing.greeted(told) is Verdict.ANEW:
        other.breaks()
    if other.pairing.greeted(told) is Verdict.STALE:
        return
    answer = other.pairing.own
    meanwhile()
    if other.pairing.accepted(answer, told) is not Verdict.FITS:
        return
    close(other.into)
    other.into = connection
    other.look()
    meanwhile()
    if one.pairing.dialled(told, answer) is Verdict.FITS:
        one.out = connection
        one.look()
    else:
        connection[0] = True


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_both_ends_come_up_in_the_same_lives(random):
    ends = End(random.randint(1, 9)), End(random.randint(1, 9))
    for _ in range(12):
        for end in random.sample(ends, 2):
            if random.random() < 0.5:
                end.notices()
        first, second = random.sample(ends, 2)
        dial(first, second, random, 0.3)
    for _ in range(4):
        for one, other in (ends, ends[::-1]):
            one.notices()
            dial(one, other, random, 0.0)
    first, second = ends
    assert first.pairing.up
    assert second.pairing.up
    assert first.out is second.into
    assert second.out is first.into
    assert (first.pairing.peer, second.pairing.peer) == (second.pairing.own, first.pairing.own)
    for end in ends:  # no life of an end that was up meets two of the other's
        assert len({own for own, _ in end.sent}) == len(end.sent)


def test_an_end_that_has_not_noticed_a_break_begins_anew_when_it_is_dialled():
    pairing = Pairing(5)
    assert pairing.accepted(5, 3) is Verdict.FITS
    assert pairing.dialled(5, 3) is Verdict.FITS
    assert pairing.up
    assert pairing.greeted(4) is Verdict.ANEW
    assert pairing.greeted(2) is Verdict.STALE
    pairing.broke()
    assert pairing.accepted(5, 4) is Verdict.STALE  # answered in the former life
    assert pairing.greeted(4) is Verdict.FITS
    assert pairing.accepted(6, 4) is Verdict.FITS
    assert not pairing.up


def test_a_connection_to_a_former_life_is_over_once_the_new_one_is_known():
    pairing = Pairing(5)
    assert pairing.dialled(5, 3) is Verdict.FITS
    assert pairing.accepted(5, 4) is Verdict.FITS
    assert (pairing.has_out, pairing.has_in) == (False, True)
    assert pairing.own == 5


def test_lives_grow_from_one_process_to_the_next():
    assert Pairing().own < Pairing().own
