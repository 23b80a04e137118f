"""Leader and followers: wake-ups, the next leader, and that no thread is left asleep. Events and bells, no sleeps."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tensord.interpreter.concurrency import leader_followers
from tensord.interpreter.concurrency.bell import Bell
from tensord.interpreter.concurrency.interrupts import SHIELD
from tensord.interpreter.concurrency.leader_followers import Awaited, LeaderFollowers, Until
from tensord.interpreter.errors import ConnectionLost

from ...each_case import each_case

WAIT = 30.0  # seconds until a test that hangs is given up; never slept


class Letters:
    """A duty: takes letters that arrived and puts them in boxes. Tells the test when the leader is about to sleep."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.arrived: deque[str] = deque()
        self.boxes: set[str] = set()
        self.servers: list[int] = []  # the thread of each round
        self.asleep = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self.waiting = LeaderFollowers(self, "the post office was closed")

    def ring(self) -> None:
        self.bell.ring()

    def serve(self, awaited: Awaited, timeout: float | None) -> None:
        self.servers.append(threading.get_ident())
        if not (self.arrived or awaited.done or self.waiting.closed):
            with SHIELD.interruptible:
                self.asleep.release()
                self.bell.sleep(timeout)
        while self.arrived:
            self.boxes.add(self.arrived.popleft())
        self.waiting.wake()

    def unattended(self) -> None:
        self.left.release()

    def bring(self, *letters: str) -> None:
        """Letters arrive, for the current leader."""
        self.arrived.extend(letters)
        self.ring()

    def has(self, letter: str) -> Until:
        return Until(lambda: letter in self.boxes)

    def assert_nobody_is_left(self) -> None:
        assert self.waiting.followers == []
        assert self.waiting.leader is None
        assert not self.waiting.role.locked()


class Waiting:
    """A thread that waits for a letter, with its result. It fails at its next look once `fails` is set."""

    def __init__(self, post: Letters, letter: str, timeout: float | None = WAIT) -> None:
        self.result: Any = None
        self.fails = threading.Event()
        self.listed = threading.Event()  # as a follower: it sleeps, or is about to after its last look
        self._post, self._letter, self._timeout = post, letter, timeout
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    @property
    def done(self) -> bool:
        if threading.current_thread() is self.thread:
            if self.fails.is_set():
                raise ValueError("it leaves")
            if any(follower.awaited is self for follower in self._post.waiting.followers):
                self.listed.set()
        return self._letter in self._post.boxes

    def _run(self) -> None:
        try:
            self.result = self._post.waiting.wait(self, self._timeout)
        except (ConnectionLost, ValueError) as error:
            self.result = error

    def end(self) -> Any:
        self.thread.join(WAIT)
        assert not self.thread.is_alive()
        return self.result


@pytest.fixture
def post() -> Iterator[Letters]:
    post = Letters()
    yield post
    post.assert_nobody_is_left()


def leader_of(post: Letters, letter: str) -> Waiting:
    """A thread that leads, and sleeps."""
    leader = Waiting(post, letter)
    assert post.asleep.acquire(timeout=WAIT)
    return leader


def follower_of(post: Letters, letter: str) -> Waiting:
    """A thread that sleeps while another one leads."""
    follower = Waiting(post, letter)
    assert follower.listed.wait(WAIT)
    return follower


def test_a_wait_that_is_over_does_no_work(post: Letters) -> None:
    post.boxes.add("a")
    assert post.waiting.wait(post.has("a"))
    assert post.servers == []


def test_the_leader_does_the_work_that_ends_its_wait(post: Letters) -> None:
    leader = leader_of(post, "a")
    post.bring("a")
    assert leader.end() is True
    assert set(post.servers) == {leader.thread.ident}


def test_the_leader_keeps_the_role_until_its_own_wait_is_over(post: Letters) -> None:
    leader = leader_of(post, "z")
    for letter in "abc":
        post.bring(letter)
        assert post.asleep.acquire(timeout=WAIT)
        assert post.waiting.role.locked()
    post.bring("z")
    assert leader.end() is True
    assert set(post.servers) == {leader.thread.ident}


def test_a_follower_is_woken_by_the_leaders_work_and_does_none(post: Letters) -> None:
    leader = leader_of(post, "z")
    followers = [follower_of(post, letter) for letter in "abc"]
    post.bring("a", "b", "c")
    assert [follower.end() for follower in followers] == [True] * 3
    assert leader.thread.is_alive()
    post.bring("z")
    assert leader.end() is True
    assert set(post.servers) == {leader.thread.ident}


def test_only_the_follower_whose_wait_is_over_is_woken(post: Letters) -> None:
    leader = leader_of(post, "z")
    first, second = follower_of(post, "a"), follower_of(post, "b")
    post.bring("a")
    assert first.end() is True
    (left,) = post.waiting.followers
    assert not left.bell.sleep(0)  # the bell was not rung
    assert second.thread.is_alive()
    post.bring("b", "z")
    assert (second.end(), leader.end()) == (True, True)


def test_a_follower_leads_once_the_leader_has_left(post: Letters) -> None:
    leader = leader_of(post, "a")
    follower = follower_of(post, "b")
    post.bring("a")
    assert leader.end() is True
    assert post.asleep.acquire(timeout=WAIT)  # the follower sleeps as the leader
    post.bring("b")
    assert follower.end() is True
    assert post.servers[-1] == follower.thread.ident


def test_what_ends_several_waits_at_once_leaves_one_of_the_rest_to_lead(post: Letters) -> None:
    leader = leader_of(post, "a")
    followers = [follower_of(post, letter) for letter in "bac"]
    post.bring("a")
    assert leader.end() is followers[1].end() is True
    assert post.asleep.acquire(timeout=WAIT)
    post.bring("b", "c")
    assert followers[0].end() is followers[2].end() is True


def test_a_leader_that_leaves_wakes_all_before_the_one_that_leads_next(
    post: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter has come after the leaving thread's last round, and has not been reported."""
    monkeypatch.setattr(leader_followers, "SIGNAL_CHECK_INTERVAL", 3 * WAIT)
    told = threading.Event()

    def leaves() -> bool:
        if told.is_set():
            post.boxes.add("a")
        return told.is_set()

    leader = threading.Thread(target=post.waiting.wait, args=(Until(leaves),))
    leader.start()
    assert post.asleep.acquire(timeout=WAIT)
    first, second = follower_of(post, "a"), follower_of(post, "b")
    told.set()
    post.ring()
    leader.join(WAIT)
    assert first.end() is True
    assert post.asleep.acquire(timeout=WAIT)  # the second one sleeps as the leader
    post.bring("b")
    assert second.end() is True


def test_work_of_a_thread_that_does_not_lead_wakes_leader_and_followers(post: Letters) -> None:
    leader, follower = leader_of(post, "a"), follower_of(post, "b")
    post.boxes |= {"a", "b"}
    post.waiting.wake()
    assert (leader.end(), follower.end()) == (True, True)


def test_a_predicate_that_comes_true_before_the_sleep_is_seen(post: Letters) -> None:
    """The predicate becomes true, and `wake` is called, between the first look and the second, before the sleep."""
    looks: list[int] = []

    def late() -> bool:
        looks.append(1)
        if len(looks) == 2:
            post.boxes.add("a")
        return "a" in post.boxes

    assert post.waiting.wait(Until(late), WAIT)
    assert not post.asleep.acquire(blocking=False)


def test_a_follower_that_is_listed_after_the_leader_left_does_not_sleep(post: Letters) -> None:
    """The role is free at its second look, so it leads; no other thread would have woken it."""
    looks: list[int] = []
    post.waiting.role.acquire()

    def has() -> bool:
        looks.append(1)
        if len(looks) == 1:  # the leader is there at the first look, and gone at the next
            release.start()
            release.join(WAIT)
        return "a" in post.boxes

    def leave() -> None:
        post.waiting.role.release()
        post.bring("a")

    release = threading.Timer(0, leave)
    assert post.waiting.wait(Until(has), WAIT)


def test_the_end_of_a_wait_without_followers_is_told(post: Letters) -> None:
    leader = leader_of(post, "a")
    post.bring("a")
    assert leader.end() is True
    assert post.left.acquire(timeout=WAIT)


# -- time ----------------------------------------------------------------------------------------------------------


def test_a_leader_whose_time_is_over_hands_on(post: Letters) -> None:
    leader = Waiting(post, "never", timeout=0.05)
    assert post.asleep.acquire(timeout=WAIT)
    follower = Waiting(post, "a")
    assert leader.end() is False
    assert post.asleep.acquire(timeout=WAIT)
    post.bring("a")
    assert follower.end() is True


def test_a_follower_whose_time_is_over_leaves_the_leader_alone(post: Letters) -> None:
    leader = leader_of(post, "a")
    assert Waiting(post, "never", timeout=0.01).end() is False
    assert post.waiting.followers == []
    assert post.waiting.role.locked()
    post.bring("a")
    assert leader.end() is True


def test_a_follower_that_leaves_when_it_is_to_lead_hands_on(post: Letters) -> None:
    """The follower was woken to lead, and leaves by an error: the next one has to lead."""
    leader, first, second = leader_of(post, "a"), follower_of(post, "never"), follower_of(post, "b")
    first.fails.set()
    post.bring("a")
    assert leader.end() is True
    assert isinstance(first.end(), ValueError)
    assert post.asleep.acquire(timeout=WAIT)  # the second one sleeps as the leader
    post.bring("b")
    assert second.end() is True


def test_no_time_at_all_is_one_look(post: Letters) -> None:
    assert post.waiting.wait(post.has("a"), 0.0) is False
    assert post.servers == []


# -- the end -------------------------------------------------------------------------------------------------------


def test_closing_wakes_everybody(post: Letters) -> None:
    waits = [leader_of(post, "a"), *(follower_of(post, letter) for letter in "bcd")]
    post.waiting.close()
    for each in waits:
        assert isinstance(each.end(), ConnectionLost)
        assert "the post office was closed" in str(each.result)
    with pytest.raises(ConnectionLost):
        post.waiting.wait(post.has("a"))


def test_a_wait_that_is_over_when_it_is_closed_ends_well(post: Letters) -> None:
    post.waiting.close()
    post.boxes.add("a")
    assert post.waiting.wait(post.has("a"))


# -- exceptions and signals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_exception_in_the_sleep_gives_the_role_back_and_hands_on(post: Letters, monkeypatch, error) -> None:
    follower: list[Waiting] = []

    def interrupted(_timeout: float | None) -> bool:
        monkeypatch.undo()
        follower.append(follower_of(post, "a"))
        raise error

    monkeypatch.setattr(post, "bell", type("Rung", (), {"sleep": staticmethod(interrupted), "ring": post.bell.ring})())
    with pytest.raises(error):
        post.waiting.wait(post.has("b"))
    assert post.asleep.acquire(timeout=WAIT)
    assert post.asleep.acquire(timeout=WAIT)  # the follower sleeps as the leader
    post.bring("a")
    assert follower[0].end() is True


@pytest.fixture
def shield() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    SHIELD.install()
    yield
    SHIELD.remove()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("shield")
@each_case("look", [1, 2, 3])
def test_ctrl_c_at_any_look_comes_in_the_sleep(post: Letters, look: int) -> None:
    """Noted wherever it comes, raised where the leader would sleep; the role is given back."""
    looks: list[int] = []

    def has() -> bool:
        looks.append(1)
        if len(looks) == look:
            signal.raise_signal(signal.SIGINT)
        return False

    post.bell.ring()  # so that there are several rounds
    with pytest.raises(KeyboardInterrupt):
        post.waiting.wait(Until(has), WAIT)


@pytest.mark.usefixtures("shield")
def test_ctrl_c_while_a_follower_sleeps_leaves_no_follower(post: Letters) -> None:
    leader = leader_of(post, "a")

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    looks: list[int] = []

    def has() -> bool:
        looks.append(1)
        if len(looks) == 2:
            threading.Thread(target=interrupt).start()
        return False

    with pytest.raises(KeyboardInterrupt):
        post.waiting.wait(Until(has), WAIT)
    assert post.waiting.followers == []
    post.bring("a")
    assert leader.end() is True


def test_a_signal_handler_on_the_thread_that_leads_may_wait(post: Letters) -> None:
    """The handler leads on top of the wait below, which then goes on, and sees the work done meanwhile."""
    told: list[object] = []

    def handle(*_: object) -> None:
        post.bring("handler", "a")
        told.append(post.waiting.wait(post.has("handler"), WAIT))

    def interrupt() -> None:
        assert post.asleep.acquire(timeout=WAIT)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert post.waiting.wait(post.has("a"), WAIT)
    finally:
        thread.join(WAIT)
        signal.signal(signal.SIGUSR1, before)
    assert told == [True]


@pytest.mark.parametrize("timeout", [None, 1e12])
@pytest.mark.parametrize("leads", [True, False])
def test_a_signal_that_interrupts_no_sleep_is_handled_soon(post: Letters, leads: bool, timeout: float | None) -> None:
    """The signal comes to a thread that cannot run the handler, as if just before the sleep in the kernel."""
    leader = None if leads else leader_of(post, "another")

    def interrupt() -> None:
        assert leader or post.asleep.acquire(timeout=WAIT)
        while leader and not post.waiting.followers:
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGUSR1, lambda *_: post.bring("mine", "another"))
    try:
        thread.start()
        assert post.waiting.wait(post.has("mine"), timeout)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join(WAIT)
    assert leader is None or leader.end() is True


def test_a_signal_handler_that_does_the_work_wakes_the_leader_below_it(post: Letters) -> None:
    """The handler itself does not wait: its letter was there."""
    rung: list[bool] = []

    def handle(*_: object) -> None:
        post.boxes.add("a")
        post.waiting.wake()
        rung.append(post.bell.sleep(0))
        post.ring()

    def interrupt() -> None:
        assert post.asleep.acquire(timeout=WAIT)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert post.waiting.wait(post.has("a"), WAIT)
    finally:
        thread.join(WAIT)
        signal.signal(signal.SIGUSR1, before)
    assert rung == [True]


# -- rounds on behalf of no waiter ---------------------------------------------------------------------------------


def test_a_round_in_nobodys_name_wakes_followers_and_hands_on(post: Letters) -> None:
    helper = threading.Thread(target=post.waiting.serve_once, args=(WAIT,))
    helper.start()
    assert post.asleep.acquire(timeout=WAIT)
    first, second = follower_of(post, "a"), follower_of(post, "b")
    post.bring("a")
    assert first.end() is True
    helper.join(WAIT)
    assert post.asleep.acquire(timeout=WAIT)  # the second one leads
    post.bring("b")
    assert second.end() is True


def test_a_round_in_nobodys_name_is_refused_while_a_thread_leads(post: Letters) -> None:
    leader = leader_of(post, "a")
    assert not post.waiting.serve_once(WAIT)
    post.bring("a")
    assert leader.end() is True


# -- all of it -----------------------------------------------------------------------------------------------------


def test_many_threads_each_get_their_letters(post: Letters) -> None:
    """Every letter arrives from another thread, and each wait ends, with any leader."""

    def work(name: int) -> None:
        for n in range(100):
            letter = f"{name}:{n}"
            threading.Thread(target=post.bring, args=(letter,)).start()
            assert post.waiting.wait(post.has(letter), WAIT)
        done.append(name)

    done: list[int] = []
    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * WAIT)  # for a hundred threads each
    assert sorted(done) == [0, 1, 2, 3]
