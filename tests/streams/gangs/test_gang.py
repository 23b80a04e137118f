"""Launches of several nodes: the order of messages, failures at each of them, and nodes that lie."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, KernelError, ProtocolError, TensordError, node_lost
from tensord.interpreter.types.meta import Meta
from tensord.streams.gangs.messages import MESSAGE_META, GangMessage
from tensord.streams.gangs.states import IGNORING_STATES, STATES_OF_MESSAGE, TRANSITIONS, GangEvent, State
from tensord.streams.library import ID_BYTES

from .world import DIGEST, Step, World

NODES = ("node0", "node1", "node2")
FIRST = b"x".ljust(16, b"\0")


class TestTable:
    def test_every_state_is_reached_and_left_but_the_last(self) -> None:
        assert {state for state, _ in TRANSITIONS} == set(State) - {State.OVER}
        assert set(TRANSITIONS.values()) == set(State) - {State.COMING}

    def test_a_failure_is_legal_as_long_as_nothing_is_being_ended(self) -> None:
        assert {state for state, event in TRANSITIONS if event is GangEvent.FAILED} == set(State) - IGNORING_STATES

    def test_no_word_is_heard_where_words_do_not_count(self) -> None:
        assert set(STATES_OF_MESSAGE) == set(GangMessage)
        assert not any(states & IGNORING_STATES for states in STATES_OF_MESSAGE.values())


def world_of(*nodes: str) -> World:
    world = World(nodes or NODES)
    world.add("x", nodes or NODES)
    return world


class TestLaunch:
    def test_begins_nowhere_before_all_nodes_are_ready_and_then_everywhere(self) -> None:
        world = world_of()
        for node in ("node1", "node0"):
            world.begin("x", node)
            world.run()
        assert not any(library.order for library in world.libraries.values())
        assert not any(turns._asked for turns in world.turns.values())
        assert world.gangs["x", "node0"].waits_for().endswith("on other nodes: node2")
        world.begin("x", "node2")
        world.run()
        assert [world.outcome("x", node) for node in NODES] == [None] * 3
        world.check_over()

    def test_that_follows_takes_the_same_communicator(self) -> None:
        world = world_of()
        world.add("y", NODES)
        for label in "xy":
            for node in NODES:
                world.begin(label, node)
            world.run()
        assert len(world.made) == 1
        world.check_over()

    def test_makes_a_communicator_anew_on_all_if_one_node_has_lost_it(self) -> None:
        world = world_of()
        world.add("y", NODES)
        for label in "xy":
            for node in NODES:
                world.begin(label, node)
            world.run()
            world.libraries["node1"].ids.clear()
        assert len(world.made) == 2
        world.check_over()

    def test_of_one_node_alone_needs_nobody(self) -> None:
        world = world_of("node1")
        world.begin("x", "node1")
        world.run()
        assert world.outcome("x", "node1") is None
        world.check_over()

    def test_counts_as_hanging_only_while_it_has_a_turn_or_gpus(self) -> None:
        world = world_of("node0", "node1")
        gang = world.gangs["x", "node0"]
        world.begin("x", "node0")
        world.run()
        assert gang.state is State.GATHERING
        assert gang.since == 0
        world.begin("x", "node1")
        while gang.state is not State.LAUNCHED:
            world.steps()[0]()
        assert gang.since > 0
        assert gang.waits_for() == "it waits for the GPUs of this node"
        world.run()
        world.check_over()


def interfere(seed: int, harm: Callable[[World, random.Random], object]) -> World:
    """One launch in a random order, with harm at a random moment."""
    rnd = random.Random(seed)
    moment = rnd.randrange(45)
    world = world_of()
    beginnings: list[Step] = [partial(world.begin, "x", node) for node in NODES]
    for count in itertools.count():
        if count == moment:
            harm(world, rnd)
        choices = [*beginnings, *world.steps()]
        if not choices and count >= moment:
            return world
        if choices:
            step = rnd.choice(choices)
            beginnings = [one for one in beginnings if one is not step]
            step()
    raise AssertionError


def end(kind: type[TensordError]) -> Callable[[World, random.Random], object]:
    return lambda world, rnd: world.gangs["x", rnd.choice(NODES)].withdraw(kind("enough"))


@pytest.mark.parametrize("kind", [KernelError, CancelledError])
def test_whenever_one_node_withdraws_all_hear_of_it_or_end_well(kind: type[TensordError]) -> None:
    seen: Counter[int] = Counter()
    for seed in range(300):
        world = interfere(seed, end(kind))
        outcomes = [told for answers in world.results.values() for told in answers]
        assert all(error is None or type(error) is kind for error in outcomes)
        seen[sum(error is not None for error in outcomes)] += 1
        world.check_over()
    assert seen[0] > 10  # too late to matter
    assert seen[3] > 100


def test_whenever_a_node_is_lost_the_others_hear_of_it_or_end_well() -> None:
    seen: Counter[int] = Counter()
    for seed in range(300):

        def lose(world: World, rnd: random.Random) -> None:
            gone = rnd.choice(NODES)
            for node in set(NODES) - {gone}:
                world.links[node].lose(gone, "it burns")
            world.libraries[gone].ids.clear()

        world = interfere(seed, lose)
        waiting = [key for key, gang in world.gangs.items() if gang.state is State.GATHERING]
        assert not waiting
        seen[sum(error is not None for answers in world.results.values() for error in answers)] += 1
        assert all(len(answers) == 1 for answers in world.results.values())
        assert not any(turns._asked for turns in world.turns.values())
    assert seen[0] > 10
    assert seen[3] > 100


def test_random_launches_over_overlapping_nodes_have_one_order_without_deadlock() -> None:
    """Each node begins the launches in an order of its own."""
    nodes = tuple(f"node{n}" for n in range(4))
    for seed in range(60):
        rnd = random.Random(seed)
        world = World(nodes)
        beginnings: list[tuple[str, str]] = []
        for number in range(8):
            members = rnd.sample(nodes, rnd.randint(2, 4))
            world.add(f"x{number}", members)
            beginnings += [(f"x{number}", node) for node in members]
        rnd.shuffle(beginnings)
        while (steps := world.steps()) or beginnings:
            if beginnings and (not steps or rnd.random() < 0.2):
                world.begin(*beginnings.pop())
            else:
                rnd.choice(steps)()
        assert all(world.outcome(*key) is None for key in world.gangs)
        world.check_over()


class Liar:
    """A node that sends arbitrary messages, in place of a launch's part of its own."""

    def __init__(self, world: World, node: str, peer: str) -> None:
        self.link = world.links[node].to(peer)
        self.number = max(NODES.index(node), NODES.index(peer))
        self.errors: list[TensordError | None] = []

    def send(self, message: GangMessage, digest: bytes = DIGEST, id_: bytes = b"", form: Meta = MESSAGE_META) -> None:
        content = np.zeros(form.shape, form.dtype)
        if form is MESSAGE_META:
            content[:] = np.frombuffer(digest + id_.ljust(ID_BYTES, b"\0"), np.uint8)
        self.link.offer(message.transfer(FIRST, self.number), form, content, self.errors.append)


def messages_of(leads: bool) -> list[GangMessage]:
    return [message for message in GangMessage if message.is_leaders is leads]


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("lie", ["digest", "form", "early"])
def test_a_lie_in_any_word_fails_the_launch_and_no_other(leads: bool, position: int, lie: str) -> None:
    """The two honest nodes are told; their other launches go on."""
    liar_node, honest = ("node0", "node1") if leads else ("node1", "node0")
    world = World(NODES[:2])
    world.add("x", NODES[:2])
    liar = Liar(world, liar_node, honest)
    world.begin("x", honest)
    messages = messages_of(leads)
    for message in messages[:position] if lie != "early" else ():
        liar.send(message, id_=b"an id")
        advance(world, honest)
    told: dict[str, tuple[GangMessage, bytes, Meta]] = {
        "digest": (messages[position], bytes(32), MESSAGE_META),
        "form": (messages[position], DIGEST, Meta.of((1 << 20,), "uint8")),
        "early": (messages[max(position, 1)], DIGEST, MESSAGE_META),
    }
    message, digest, form = told[lie]
    liar.send(message, digest, b"an id", form)
    world.run()
    error = world.outcome("x", honest)
    if position == 2 and lie != "early" and not leads:
        assert error is None or isinstance(error, TensordError)
    else:
        assert position == 2 or isinstance(error, TensordError)
    assert world.gangs["x", honest].state is State.OVER
    assert not world.turns[honest]._asked
    check_others(world)


def advance(world: World, honest: str) -> None:
    """Messages arrive; the honest node's GPU does its part, independent of the other one."""
    library = world.libraries[honest]
    while world.carried or library.queue:
        for step in world.carried[:] or [library.take]:
            if step in world.carried:
                world.carried.remove(step)
            step()
    if library.making is not None:
        world.made.add(library.making.id)
        library.make()
    for job in list(library.stream):
        library.end(job)
    while world.carried:
        world.carry_one(0)


def check_others(world: World) -> None:
    """Another launch of the same nodes works."""
    world.add("y", NODES[:2])
    for node in NODES[:2]:
        world.begin("y", node)
    world.run()
    assert [world.outcome("y", node) for node in NODES[:2]] == [None, None]


def test_a_leader_that_names_no_communicator_is_found_out() -> None:
    world = World(NODES[:2])
    world.add("x", NODES[:2])
    liar = Liar(world, "node0", "node1")
    world.begin("x", "node1")
    for message in (GangMessage.TURN, GangMessage.GO):
        liar.send(message)
        while world.carried:
            world.carry_one(0)
    error = world.outcome("x", "node1")
    assert isinstance(error, ProtocolError)
    assert "has named no communicator" in str(error)


def test_a_node_that_says_granted_in_anothers_place_is_found_out() -> None:
    world = world_of()
    world.turns["node1"].take("another launch has the turn", lambda: None)
    for node in ("node0", "node1"):
        world.begin("x", node)
    liar = Liar(world, "node2", "node0")
    liar.send(GangMessage.READY)
    while world.carried:
        world.carry_one(0)
    liar.send(GangMessage.GRANTED, id_=b"mine")
    world.run()
    for node in ("node0", "node1"):
        assert isinstance(world.outcome("x", node), ProtocolError)


def test_a_node_that_was_told_something_else_is_named_everywhere() -> None:
    world = World(NODES)
    world.add("x", NODES, {"node2": bytes(32)})
    for node in NODES:
        world.begin("x", node)
    world.run()
    for node in NODES:
        assert "node2 was told to launch something else" in str(world.outcome("x", node))
    world.check_over(failures=1)  # of the READY whose report was under way


def test_who_withdraws_first_and_begins_later_is_told() -> None:
    world = world_of("node0", "node1")
    gone = node_lost("node7", "it burns")
    world.gangs["x", "node1"].withdraw(gone)
    for node in NODES[:2]:
        world.begin("x", node)
    world.run()
    assert [type(world.outcome("x", node)) for node in NODES[:2]] == [type(gone)] * 2
    world.check_over()
