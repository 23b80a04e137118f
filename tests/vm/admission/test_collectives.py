"""COLLECTIVE messages: refusals, and the effects of cancellation, memory limits and the end of a session.

Streams execute on a test's command: three sim devices, none of which runs anything by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, MetadataError, ProtocolError, QuotaError, TensordError
from tensord.interpreter.wire.messages import Fetch, Lookup, Publish, Release, Upload, encode_message
from tensord.interpreter.wire.node_messages import Collective
from tensord.streams.host.cpu import CpuOptions
from tensord.streams.sim.sim import SimOptions
from tensord.vm.engine import Engine
from tensord.vm.model.session import VmSession
from tensord.vm.reporting.invariants import violations

from ...each_case import each_case
from ...model.streams import ModelCpu, ModelSim, Steering

SIMS = ("sim:0", "sim:1", "sim:2")


class Machine:
    """An engine with its devices, and sessions whose answers are kept."""

    def __init__(self, **options: Any) -> None:
        self.now = 0
        steering = Steering(self.clock, frozenset(), inline=False, events=True)
        self.devices: dict[str, Any] = {"cpu:0": ModelCpu("cpu:0", self.sink, CpuOptions(workers=1), steering)}
        for name in SIMS:
            self.devices[name] = ModelSim(name, self.sink, SimOptions(**options), steering)
        self.engine = Engine(self.devices, self.clock)
        self.errors: list[TensordError] = []
        self.engine.report = lambda _session, error: self.errors.append(error)
        self.answers: dict[int, tuple[Any, Any]] = {}

    def clock(self) -> int:
        self.now += 1
        return self.now

    def sink(self, tasks: Sequence[Any]) -> None:
        self.engine.finished.extend(tasks)

    def session(self) -> VmSession:
        return self.engine.open_session(lambda request, value, error: self.answers.update({request: (value, error)}))

    def send(self, session: VmSession, *messages: Any) -> None:
        self.engine.receive(session, [encode_message(message) for message in messages])
        self.schedule()

    def schedule(self) -> None:
        while self.engine.schedule():
            pass
        assert violations(self.engine) == []

    def drain(self) -> None:
        """Run all streams until they are idle."""
        streams = [stream for device in self.devices.values() for stream in device.streams]
        while busy := [stream for stream in streams if stream.can_execute()]:
            busy[0].execute()
            busy[0].report(1)
            self.schedule()
        assert not self.engine.live

    def fetch(self, session: VmSession, id_: int) -> Any:
        self.send(session, Fetch(id_, 1000 + id_, 0, 0))
        self.drain()
        value, error = self.answers[1000 + id_]
        if error is not None:
            raise error
        return value.tolist()


def uploads(count: int = 3, values: Any = (1.0, 2.0)) -> list[Upload]:
    """A tensor on each device: 1, 2, 3."""
    array = np.array(values, np.float64)
    return [Upload(n + 1, array.shape, "float64", SIMS[n], array * (n + 1), 0) for n in range(count)]


def reduce_all(*inputs: int, outputs: tuple[int, ...] = (11, 12, 13), **given: Any) -> Collective:
    return Collective("all_reduce", inputs or (1, 2, 3), outputs, (), given, 0)


REFUSED: dict[str, tuple[Collective, type[TensordError], str]] = {
    "an unknown tensor": (reduce_all(1, 2, 9), ProtocolError, "never defined"),
    "a tensor twice": (reduce_all(1, 2, 1), MetadataError, "sim:0 twice"),
    "more tensors than devices": (reduce_all(*[1] * 99), MetadataError, "99 tensors .* the machine has 4"),
    "more results than devices": (
        Collective("broadcast", (1,), tuple(range(11, 61)), ("n/sim:0",) * 50, (), 0),
        MetadataError,
        "50 tensors .* the machine has 4",
    ),
    "a result too few": (reduce_all(outputs=(11, 12)), MetadataError, "2 results for 3 devices"),
    "no kind": (reduce_all()._replace(kind="gossip"), MetadataError, "unknown collective 'gossip'"),
    "devices for a reduction": (reduce_all()._replace(devices=("sim:0",)), MetadataError, "only a broadcast"),
    "an unknown device": (
        Collective("broadcast", (1,), (11,), ("sim:7",), (), 0),
        MetadataError,
        "unknown device 'sim:7'",
    ),
    "another kind of device": (Collective("broadcast", (1,), (11,), ("cpu:0",), (), 0), MetadataError, "one kind"),
    "a device of another machine": (Collective("broadcast", (1,), (11,), ("n/sim:0",), (), 0), MetadataError, "n/sim"),
    "an unknown attribute": (reduce_all(colour="red"), MetadataError, "only the attributes"),
    "an axis that is none": (reduce_all(axis=2**62), MetadataError, "axis of a collective"),
    "a timeout that is none": (reduce_all(timeout=float("nan")), MetadataError, "timeout of a collective"),
    "an infinite timeout": (reduce_all(timeout=float("inf")), MetadataError, "timeout of a collective"),
}


@each_case("what", REFUSED)
def test_a_refused_message_defines_its_results_poisoned_and_does_nothing(what: str) -> None:
    message, kind, text = REFUSED[what]
    machine = Machine()
    session = machine.session()
    machine.send(session, *uploads())
    machine.drain()
    copies = machine.engine.residency.copies
    machine.send(session, message)
    assert not machine.engine.live
    assert machine.engine.residency.copies - copies == len(message.outputs)  # each poisoned output has one
    (error,) = machine.errors
    assert type(error) is kind
    for id_ in message.outputs:
        with pytest.raises(kind, match=text):
            machine.fetch(session, id_)
    machine.send(session, reduce_all(outputs=(121, 122, 123)))
    assert machine.fetch(session, 122) == [6.0, 12.0]


def test_ids_that_are_not_new_are_left_alone() -> None:
    machine = Machine()
    session = machine.session()
    machine.send(session, *uploads())
    machine.send(session, reduce_all(outputs=(11, 3, 13)))
    assert "not new" in str(machine.errors[0])
    assert machine.fetch(session, 1) == [1.0, 2.0]


def test_a_session_over_its_quota_is_refused_and_told_on_which_devices() -> None:
    machine = Machine()
    session = machine.session()
    machine.send(session, *uploads())
    session.account.limit = session.account.bytes + 40
    machine.send(session, reduce_all())
    with pytest.raises(QuotaError):
        machine.fetch(session, 12)
    assert [session.tensors[id_].home.name for id_ in (11, 12, 13)] == list(SIMS)
    assert session.account.bytes == 48


def test_a_ceiling_is_for_each_device() -> None:
    machine = Machine(ceiling=48)
    session = machine.session()
    machine.send(session, *uploads(), reduce_all())
    assert machine.fetch(session, 13) == [6.0, 12.0]
    shares = {device.name: nbytes for device, nbytes in session.account.shares.items()}
    assert shares == dict.fromkeys(SIMS, 32)


def test_one_result_that_another_session_holds_protects_the_whole_group() -> None:
    machine = Machine()
    mine, theirs = machine.session(), machine.session()
    machine.send(mine, *uploads(), reduce_all(), Publish(("sum",), (12,), 1))
    machine.send(theirs, Lookup(("sum",), (1,), 2, False))
    machine.engine.cancel(mine)
    machine.schedule()
    machine.drain()
    assert machine.fetch(theirs, 1) == [6.0, 12.0]


def test_a_cancellation_dooms_the_group_and_leaves_another_sessions_alone() -> None:
    """Both groups are over the same devices."""
    machine = Machine()
    mine, theirs = machine.session(), machine.session()
    machine.send(mine, *uploads(), reduce_all())
    machine.send(theirs, *uploads(), reduce_all())
    machine.engine.cancel(mine)
    machine.schedule()
    with pytest.raises(CancelledError):
        machine.fetch(mine, 11)
    assert machine.fetch(theirs, 11) == [6.0, 12.0]


def test_the_end_of_a_session_leaves_nothing() -> None:
    machine = Machine(peer=False)
    session = machine.session()
    machine.send(session, *uploads(), reduce_all())
    machine.engine.close(session)
    machine.schedule()
    machine.drain()
    assert [device.allocated for device in machine.devices.values()] == [0] * 4
    assert [device.planned for device in machine.engine.devices.values()] == [0] * 4


def test_inputs_and_results_may_be_released_at_once() -> None:
    machine = Machine()
    session = machine.session()
    machine.send(session, *uploads(), reduce_all(), Release((1, 2, 3, 11, 13)))
    assert machine.fetch(session, 12) == [6.0, 12.0]
    assert [machine.devices[name].allocated for name in SIMS] == [0, 16, 0]


def test_collectives_of_two_sessions_over_devices_in_another_order_end() -> None:
    machine = Machine()
    mine, theirs = machine.session(), machine.session()
    machine.send(mine, *uploads(values=range(3)))
    machine.send(theirs, *uploads(values=range(3)))
    for turn in range(4):
        outputs = tuple(range(20 + 10 * turn, 23 + 10 * turn))
        machine.send(mine, reduce_all(1, 2, 3, outputs=outputs))
        machine.send(theirs, reduce_all(3, 1, 2, outputs=outputs))
    machine.drain()
    assert machine.fetch(mine, 50) == machine.fetch(theirs, 50) == [0.0, 6.0, 12.0]
