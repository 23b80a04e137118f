"""Fetches with an export: answered with the memory where the value lies, unchanged until the export is released."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import (
    CancelledError,
    DeviceMemoryError,
    KernelError,
    MetadataError,
    ProtocolError,
    TensordError,
)
from tensord.interpreter.wire.limits import Limits
from tensord.interpreter.wire.messages import Call, Chain, Effect, Fetch, Release, Signature, ToDevice, Upload, Wait
from tensord.interpreter.wire.segments import (
    SHARED_FROM,
    MemorySegment,
    array_at,
    available,
    new_number,
    open_descriptors,
    segment_of,
)
from tensord.streams.host.cpu import CpuOptions
from tensord.streams.sim.sim import SimOptions
from tensord.vm.admission import exports
from tensord.vm.engine import Engine
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.flat import SourceLocation
from tests.model import scheduler
from tests.model.check import check_seed
from tests.model.streams import ModelCpu, ModelSim, Steering
from tests.vm.bare_engine import Bare, Client

pytestmark = pytest.mark.skipif(not available(), reason="no sealed memory files here")

COUNT = SHARED_FROM // 4  # large enough to go to a worker
META = ((COUNT,), "float64")
SIZE = COUNT * 8
ROOM = 5 * SIZE


class Daemon(Bare):
    """An engine on a cpu device whose memory is shared, and a sim device."""

    def __init__(self, *, memory: int = 1 << 26, sim: int = 1 << 26, shared: bool = True) -> None:
        self.now = 0
        steering = Steering(self.clock, frozenset(), inline=True, events=True)
        self.device = ModelCpu("cpu:0", self.sink, CpuOptions(workers=1, memory=memory, shared=shared), steering)
        self.sim = ModelSim("sim:0", self.sink, SimOptions(memory=sim), steering)
        self.engine = Engine({"cpu:0": self.device, "sim:0": self.sim}, self.clock)
        self.clients: list[Holder] = []
        self.errors: list[TensordError] = []
        self.engine.report = lambda _session, error: self.errors.append(error)

    def sink(self, tasks: Any) -> None:
        self.engine.finished.extend(tasks)

    def drain(self) -> None:
        self.schedule()
        streams = (*self.device.streams, *self.sim.streams)
        while busy := [stream for stream in streams if stream.can_execute()]:
            self.step(busy[0])

    def client(self, **limits: int) -> Holder:
        self.clients.append(Holder(self, Limits(**limits)))
        return self.clients[-1]

    def end(self) -> None:
        """Check that no state is left, and that the trace is in order."""
        for session in list(self.engine.directory.sessions.values()):
            self.engine.close(session)
        self.drain()
        assert not self.engine.live
        assert not self.engine.residency.releasing.exports
        for device in self.engine.devices.values():
            assert (device.planned, device.backend.allocated, device.mapped, device.candidates) == (0, 0, {}, {})
        assert trace_of(self.engine).verify() == []
        for client in self.clients:
            client.answers.clear()
        assert self.device.close(0)


def trace_of(engine: Engine) -> Trace:
    """The trace of all records of the engine."""
    records = engine.ring.records(lambda _session, _location: SourceLocation())
    return Trace(records, devices=tuple(engine.devices), dropped=engine.scheduler.retired - len(engine.ring.entries))


class Holder(Client):
    """A client that exports the values that it fetches."""

    def export(self, id_: int) -> tuple[int, Any]:
        """The export of a fetch, and its answer."""
        export = self.new()
        return export, self.ask(Fetch(id_, 0, 1, export))

    def begin(self, id_: int) -> tuple[int, int]:
        """A fetch that is sent and not waited for: its export and its request."""
        self.requests += 1
        export = self.new()
        self.send(Fetch(id_, self.requests, 1, export))
        return export, self.requests

    def large(self, value: float, device: str = "cpu:0", *, plain: bool = False) -> int:
        array = np.full(COUNT, float(value))
        self.send(Upload(self.new(), array.shape, "float64", device, array, 1))
        made, self.ids = self.ids, self.ids
        if (
            device == "cpu:0" and not plain
        ):  # an upload is memory of its own: computed values lie in the device's blocks
            made = self.call("positive", self.ids, meta=META)
            self.send(Release((made - 1,)))
        self.bare.drain()
        return made

    def move(self, id_: int, device: str) -> int:
        self.send(ToDevice(id_, self.new(), device, 1))
        return self.ids

    def double(self, id_: int) -> None:
        self.call("add", id_, id_, out=id_, meta=META)
        self.bare.drain()

    def call_on(self, device: str, op: str, *ids: int, out: int) -> None:
        """An op on another device, in place."""
        self.signatures += 1
        self.send(Signature(self.signatures, op, (), (META,) * len(ids), device, (META,)))
        self.send(Call(self.signatures, ids, (out,), 0, 1))

    def copy_of(self, id_: int, device: str = "cpu:0") -> Any:
        return self.session.tensors[id_].storage.copies[self.bare.engine.devices[device]]


@pytest.fixture
def make() -> Iterator[Callable[..., Daemon]]:
    made: list[Daemon] = []

    def make_one(**options: Any) -> Daemon:
        made.append(Daemon(**options))
        return made[-1]

    yield make_one
    for daemon in made:
        daemon.end()


@pytest.fixture
def daemon(make: Callable[..., Daemon]) -> Daemon:
    return make()


def is_mapped(daemon: Daemon, array: Any) -> bool:
    """Whether the array is a buffer's memory, read-only and shared."""
    assert not daemon.errors
    return segment_of(array) is not None and not array.flags.writeable


# -- on the host -------------------------------------------------------------------------------------------------------


def test_a_held_value_is_the_memory_of_its_tensor_and_nothing_is_copied(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(3)
    allocated = daemon.device.allocated
    export, array = client.export(x)
    assert is_mapped(daemon, array)
    assert np.shares_memory(array, client.copy_of(x).buffer.raw)
    assert (array == 3).all()
    assert daemon.device.allocated == allocated
    client.release(x)
    assert (daemon.device.allocated, array[0]) == (allocated, 3.0)
    client.release(export)
    assert daemon.device.allocated == 0


def test_a_value_that_is_still_computed_is_answered_in_place_when_it_is_there(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(3)
    number = client.signature("add", (META, META))
    client.send(Call(number, (x, x), (client.new(),), 0, 1))
    export, request = client.begin(client.ids)
    daemon.drain()
    array, error = client.answers[request]
    assert error is None
    assert is_mapped(daemon, array)
    assert (array == 6).all()
    client.release(export)


def test_in_place_writes_after_the_fetch_leave_what_was_fetched(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    first_export, first = client.export(x)
    client.double(x)
    second_export, second = client.export(x)
    client.double(x)
    assert (first[0], second[0], client.fetch(x)[0]) == (1.0, 2.0, 4.0)
    client.release(second_export)
    client.release(first_export)
    before = client.copy_of(x).buffer
    client.double(x)
    assert client.copy_of(x).buffer is before  # no client maps it any more


def test_views_are_answered_where_they_lie_with_their_strides(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    number = client.signature("flip", (META,), (("axis", None),))
    client.send(Call(number, (x,), (client.new(),), 0, 1))
    _, array = client.export(client.ids)
    assert is_mapped(daemon, array)
    assert array.strides == (-8,)


def test_a_small_part_of_a_large_value_is_copied_rather_than_keeping_all_of_it(daemon: Daemon) -> None:
    client = daemon.client()
    values = np.arange(8.0 * COUNT).reshape(8, COUNT)
    client.send(Upload(client.new(), values.shape, "float64", "cpu:0", values, 1))
    number = client.signature("getitem", ((values.shape, "float64"),), (("index", (2,)),))
    client.send(Call(number, (client.ids,), (client.new(),), 0, 1))
    export, array = client.export(client.ids)
    assert array.flags.owndata
    assert (array == values[2]).all()
    client.release(client.ids - 2)
    assert client.fetch(export) == values[2].tolist()


def test_small_values_are_copied(daemon: Daemon) -> None:
    client = daemon.client()
    export, array = client.export(client.upload([1.0, 2.0]))
    assert array.flags.owndata
    assert client.fetch(export) == [1.0, 2.0]


def test_without_shared_memory_the_answer_is_a_copy_and_the_export_a_tensor(make: Callable[..., Daemon]) -> None:
    daemon = make(shared=False)
    client = daemon.client()
    x = client.large(2)
    export, array = client.export(x)
    assert array.flags.owndata
    assert array.flags.writeable
    client.double(x)
    assert client.fetch(export)[0] == 2.0


# -- other users of the memory -----------------------------------------------------------------------------------------


def test_writing_to_the_export_itself_writes_elsewhere(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    export, array = client.export(x)
    client.release(x)
    client.double(export)
    assert array[0] == 1.0
    assert client.fetch(export)[0] == 2.0


def test_a_result_does_not_take_over_what_is_mapped(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    _, array = client.export(x)
    y = client.call("negative", x, meta=META, released=1)
    daemon.drain()
    assert not np.shares_memory(client.copy_of(y).buffer.raw, array)
    assert (array == 1).all()


def test_a_released_export_gives_its_block_back_to_the_pool(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    export, array = client.export(x)
    segment = segment_of(array)
    client.release(x)
    client.release(export)
    _, again = client.export(client.large(5))
    assert daemon.device.pool.cached > 0 or segment_of(again) is segment


def test_what_a_dead_client_had_mapped_is_never_pooled(daemon: Daemon) -> None:
    client = daemon.client()
    _, array = client.export(client.large(1))
    kept = daemon.device.pool.cached
    daemon.engine.close(client.session)
    daemon.drain()
    assert (daemon.device.allocated, daemon.device.pool.cached) == (0, kept)
    other = daemon.client()
    for value in range(4):
        other.large(value)
    assert (array == 1).all()


def add_to(client: Holder, id_: int) -> None:
    client.double(id_)


def overwrite(client: Holder, id_: int) -> None:
    client.call("negative", client.large(9), out=id_, meta=META)
    client.bare.drain()


def set_a_part(client: Holder, id_: int) -> None:
    number = client.signature("setitem", (META, "float"), (("index", (0,)),), (META,))
    client.send(Call(number, (id_, 9.0), (id_,), 0, 1))
    client.bare.drain()


def inherit(client: Holder, id_: int) -> None:
    client.bare.engine.admission.names.unpublish(["x"])
    client.call("negative", id_, meta=META, released=1)
    client.bare.drain()


def release_and_go_on(client: Holder, id_: int) -> None:
    client.bare.engine.admission.names.unpublish(["x"])
    client.release(id_)
    for value in range(4):
        client.large(value)


def write_elsewhere_and_go_on(client: Holder, id_: int) -> None:
    client.call_on("sim:0", "negative", client.large(9), out=id_)
    client.bare.drain()
    for value in range(4):
        client.large(value)


AFTERWARDS = [add_to, overwrite, set_a_part, inherit, release_and_go_on, write_elsewhere_and_go_on]


@pytest.mark.parametrize("afterwards", AFTERWARDS, ids=lambda afterwards: afterwards.__name__)
@pytest.mark.parametrize("uploaded", [False, True])
def test_what_an_ended_session_had_mapped_stays_whatever_others_do(
    daemon: Daemon, afterwards: Callable[[Holder, int], None], *, uploaded: bool
) -> None:
    """The session's client, or a child of the client, may still read the memory."""
    ended, other = daemon.client(), daemon.client()
    x = upload_shared(ended, np.full(COUNT, 1.0))[0] if uploaded else ended.large(1)
    ended.publish("x", ids=[x])
    _, array = ended.export(x)
    assert is_mapped(daemon, array)
    found = other.lookup("x")
    daemon.engine.close(ended.session)
    daemon.drain()
    afterwards(other, found)
    assert (array == 1).all()
    assert not daemon.errors
    daemon.engine.close(other.session)
    daemon.engine.admission.names.unpublish(list(daemon.engine.directory.names))
    daemon.drain()
    assert daemon.device.allocated == 0
    assert (array == 1).all()


def test_clients_that_end_with_what_they_map_cost_the_device_nothing(make: Callable[..., Daemon]) -> None:
    daemon = make(memory=ROOM)
    keeper = daemon.client()
    keeper.publish("x", ids=[keeper.large(1)])
    before = (daemon.device.allocated, open_descriptors())
    for _ in range(60):
        client = daemon.client()
        _, mine = client.export(client.large(2))
        _, shared = client.export(client.lookup("x"))
        daemon.engine.close(client.session)
        daemon.drain()
        client.answers.clear()
        assert (mine[0], shared[0]) == (2.0, 1.0)
        del mine, shared
    assert (daemon.device.allocated, open_descriptors()) == before
    assert not daemon.errors
    daemon.engine.admission.names.unpublish(["x"])


def test_what_a_session_released_before_its_end_is_reused(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    export, array = client.export(x)
    segment = segment_of(array)
    client.release(export, x)
    daemon.engine.close(client.session)
    daemon.drain()
    again = daemon.device.allocate(SIZE)
    assert again is not None
    assert segment_of(again.raw) is segment
    daemon.device.free(again)


def test_a_result_that_takes_over_a_written_export_ends_its_mapping(daemon: Daemon) -> None:
    """An export that was written lies elsewhere by then, and may be inherited like any other tensor."""
    client = daemon.client()
    x = client.large(1)
    export, array = client.export(x)
    client.double(export)
    client.call("negative", export, meta=META, released=1)
    daemon.drain()
    assert not daemon.engine.residency.releasing.exports
    del array


def test_a_write_over_a_quota_counts_what_it_replaces(daemon: Daemon) -> None:
    """A write to a value in a client's segment goes to new memory, and the old memory is freed."""
    client = daemon.client(bytes=SIZE)
    x, _ = upload_shared(client, np.full(COUNT, 2.0))
    client.double(x)
    assert client.fetch(x)[0] == 4.0
    assert client.session.account.bytes == SIZE


def test_an_export_outlives_the_session_of_another_client_and_ends_with_its_own(daemon: Daemon) -> None:
    maker, reader = daemon.client(), daemon.client()
    maker.publish("x", ids=[maker.large(1)])
    export, array = reader.export(reader.lookup("x"))
    writer = daemon.client()
    writer.double(writer.lookup("x"))
    daemon.engine.close(maker.session)
    assert array[0] == 1.0
    assert reader.fetch(export)[0] == 1.0
    daemon.engine.close(reader.session)
    assert writer.fetch(1)[0] == 2.0
    writer.release(1)
    daemon.engine.admission.names.unpublish(["x"])


# -- from another device -----------------------------------------------------------------------------------------------


def test_from_another_device_one_transfer_makes_the_copy_that_is_mapped(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(7, "sim:0")
    moved = daemon.engine.devices["sim:0"].moved
    first_export, first = client.export(x)
    second_export, second = client.export(x)
    assert is_mapped(daemon, first)
    assert np.shares_memory(first, second)
    assert moved["d2h"] == [1, SIZE]
    assert client.session.tensors[x].home.name == "sim:0"
    client.release(x, second_export)
    assert (first == 7).all()
    client.release(first_export)


def test_a_mapped_copy_is_not_dropped_to_make_room(make: Callable[..., Daemon]) -> None:
    daemon = make(memory=ROOM)
    client = daemon.client()
    x = client.large(7, "sim:0")
    _, array = client.export(x)
    device = daemon.engine.devices["cpu:0"]
    client.send(Wait((client.move(client.large(8, "sim:0"), "cpu:0"),), 0, 1))  # a replica that may be dropped
    daemon.drain()
    made = [client.large(value) for value in (1, 2, 3)]
    daemon.drain()
    assert (array == 7).all()
    assert (daemon.device.allocated, device.planned) == (4 * SIZE, 4 * SIZE)
    assert [client.fetch(id_)[0] for id_ in made] == [1.0, 2.0, 3.0]
    with pytest.raises(DeviceMemoryError):
        client.fetch(client.large(4))
    assert (array == 7).all()
    daemon.errors.clear()


def test_a_copy_is_a_replica_again_once_it_is_released(make: Callable[..., Daemon]) -> None:
    daemon = make(memory=ROOM)
    client = daemon.client()
    x = client.large(7, "sim:0")
    export, _ = client.export(x)
    client.release(export)
    for value in range(4):
        client.large(value)
    daemon.drain()
    assert not daemon.errors
    assert client.fetch(x)[0] == 7.0


def test_a_full_host_answers_with_a_copy(make: Callable[..., Daemon]) -> None:
    daemon = make(memory=ROOM)
    client = daemon.client()
    x = client.large(7, "sim:0")
    for value in range(5):
        client.large(value, plain=True)
    export, array = client.export(x)
    assert array.flags.owndata
    client.double(x)
    client.release(export)


def test_the_original_may_leave_its_device_while_a_client_reads_the_copy(make: Callable[..., Daemon]) -> None:
    daemon = make(sim=2 * SIZE)
    client = daemon.client()
    x = client.large(7, "sim:0")
    export, array = client.export(x)
    others = [client.large(value, "sim:0") for value in (1, 2)]  # the device is full: its copy of x goes
    assert daemon.engine.devices["sim:0"] not in client.session.tensors[x].storage.copies
    client.release(*others, export)
    assert (array == 7).all()
    assert client.fetch(x)[0] == 7.0


def test_a_lost_host_device_keeps_what_is_mapped(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(7, "sim:0")
    export, array = client.export(x)
    daemon.device.lost = KernelError("lost")
    client.send(Release((x,)))
    client.send(Wait((export,), 0, 1))
    daemon.drain()
    assert (array == 7).all()
    _, copied = client.export(export) if client.copy_of(export).poison is None else (0, array.copy())
    assert copied.flags.owndata


# -- errors, order, endings --------------------------------------------------------------------------------------------


def test_a_fetch_that_is_refused_defines_its_export(daemon: Daemon) -> None:
    client = daemon.client()
    with pytest.raises(ProtocolError, match="was never defined"):
        client.export(99)
    export = client.ids
    with pytest.raises(ProtocolError, match="was never defined"):
        client.fetch(export)
    x = client.large(1)
    with pytest.raises(ProtocolError, match="not new"):
        client.ask(Fetch(x, 0, 1, export))
    client.release(export)
    assert not daemon.errors


def test_a_poisoned_value_is_an_error_and_its_export_is_poisoned(daemon: Daemon) -> None:
    client = daemon.client()
    client.send(client.upload_message([1.0])._replace(shape=(2,)))
    with pytest.raises(MetadataError):
        client.export(client.ids)
    with pytest.raises(MetadataError):
        client.fetch(client.ids)
    client.release(client.ids)
    daemon.errors.clear()


def test_a_cancelled_session_gets_cancellation_errors(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    daemon.engine.cancel(client.session)
    with pytest.raises(CancelledError):
        client.export(x)
    daemon.engine.admission.cancellation.restart(client.session)
    export, array = client.export(x)
    assert array[0] == 1.0
    client.release(export)


def test_the_release_of_an_export_ends_a_fetch_that_waits(daemon: Daemon) -> None:
    """The fetch does not end by a copy of any size, which the scheduler's thread would make in uncounted memory."""
    client = daemon.client()
    x = client.large(7, "sim:0")
    export, request = client.begin(x)
    client.send(Release((export,)))
    value, error = client.answers[request]
    assert value is None
    assert isinstance(error, ProtocolError)
    assert "released before its value was computed" in str(error)
    assert (error.op, error.location) == ("fetch", "user.py:1")
    daemon.drain()
    client.release(x)


def test_a_session_closed_while_it_fetches_leaves_nothing(daemon: Daemon) -> None:
    client = daemon.client()
    client.begin(client.large(7, "sim:0"))
    daemon.engine.close(client.session)
    daemon.drain()


def test_an_export_with_a_pending_meta_learns_it(daemon: Daemon) -> None:
    client = daemon.client()
    x = client.large(1)
    number = client.signature("unique_values", (META,))
    client.send(Call(number, (x,), (client.new(),), 0, 1))
    export, request = client.begin(client.ids)
    assert client.session.tensors[export].meta is None
    daemon.drain()
    assert client.answers[request][0].tolist() == [1.0]
    assert client.fetch(export) == [1.0]
    client.double(x)
    client.release(export)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_the_order_of_releases_does_not_matter(daemon: Daemon, order: tuple[int, ...]) -> None:
    client = daemon.client()
    x = client.large(7, "sim:0")
    (first, array), (second, _) = client.export(x), client.export(x)
    ids = (x, first, second)
    for position in order:
        if first in client.session.tensors:
            assert (array == 7).all()
        client.release(ids[position])
    assert daemon.device.allocated == 0


# -- uploads in a client's segment -------------------------------------------------------------------------------------


def upload_shared(client: Holder, values: Any) -> tuple[int, Any]:
    """An upload that lies in a segment which its client can still write to."""
    segment = MemorySegment.create(values.nbytes, new_number())
    payload = array_at(segment, 0, values.shape, values.dtype)
    payload[...] = values
    client.send(Upload(client.new(), values.shape, values.dtype.name, "cpu:0", payload, 1))
    client.bare.drain()
    return client.ids, payload


def test_an_upload_in_a_segment_is_not_copied_not_written_and_not_passed_on(daemon: Daemon) -> None:
    client = daemon.client()
    x, payload = upload_shared(client, np.full(COUNT, 2.0))
    assert np.shares_memory(client.copy_of(x).buffer.raw, payload)
    client.double(x)
    assert (payload == 2).all()
    assert client.fetch(x)[0] == 4.0
    x, payload = upload_shared(client, np.full(COUNT, 2.0))
    y = client.call("negative", x, meta=META, released=1)
    daemon.drain()
    assert not np.shares_memory(client.copy_of(y).buffer.raw, payload)
    assert (payload == 2).all()


def test_indices_in_a_segment_are_copied_since_kernels_trust_them(daemon: Daemon) -> None:
    client = daemon.client()
    x, payload = upload_shared(client, np.arange(COUNT))
    payload[:] = 10**9
    assert client.fetch(x)[:3] == [0, 1, 2]


# -- side effects without a callback -----------------------------------------------------------------------------------


def test_an_effect_without_a_callback_answers_with_copies_in_its_place(daemon: Daemon) -> None:
    client = daemon.client()
    x, y = client.large(1), client.large(2, "sim:0")
    chain = client.new()
    client.send(Chain(chain))
    arrays = client.ask(Effect((x, y), chain, None, 0, 1))
    client.double(x)
    assert [array[0] for array in arrays] == [1.0, 2.0]
    assert all(array.flags.owndata for array in arrays)
    assert client.ask(Effect((), chain, None, 0, 1)) == []


def test_an_effect_without_a_callback_stops_its_chain_at_an_error(daemon: Daemon) -> None:
    client = daemon.client()
    chain = client.new()
    client.send(Chain(chain))
    for ids in ((99,), ()):
        with pytest.raises(ProtocolError, match="never defined"):
            client.ask(Effect(ids, chain, None, 0, 1))


# -- random programs ---------------------------------------------------------------------------------------------------


class Held:
    """Turns every fetch of a program into one with an export, and releases exports at random.

    Until an export is released, its answer must not change, also after its session has ended.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(0)
        self.answers: dict[tuple[Any, int], tuple[Any, Any]] = {}
        self.open: dict[tuple[Any, int], int] = {}  # (session, request) -> export
        self.ids = 0
        self.in_place = 0
        wind_up = scheduler.Machine.wind_up
        monkeypatch.setattr(exports, "SHARED_FROM", 0)
        monkeypatch.setattr(scheduler, "CpuOptions", functools.partial(CpuOptions, shared=True))
        monkeypatch.setattr(scheduler.Machine, "wind_up", lambda machine: self.wind_up(wind_up, machine))
        start = scheduler.Machine.__init__
        monkeypatch.setattr(
            scheduler.Machine,
            "__init__",
            lambda machine, *args, **options: self.begin(start, machine, *args, **options),
        )

    def begin(self, start: Any, machine: Any, *args: Any, **options: Any) -> None:
        self.machine = machine
        start(machine, *args, **options)
        handlers = machine.engine.admission.handlers
        handlers[Fetch] = functools.partial(self.fetch, handlers[Fetch])

    def wind_up(self, wind_up: Any, machine: Any) -> None:
        self.check()
        wind_up(machine)
        self.check()

    def fetch(self, fetch: Any, session: Any, message: Any) -> None:
        if not hasattr(session.reply, "held"):
            session.reply = self.keeping(session, session.reply)
        self.ids -= 1
        self.open[session, message.request] = self.ids
        newest, session.newest = session.newest, self.ids - 1  # ids rise, and the program's own are positive
        fetch(session, message._replace(export=self.ids))
        session.newest = newest
        mine = [key for key in self.open if key[0] is session and key in self.answers]
        for key in self.rng.sample(mine, self.rng.randint(0, len(mine))):
            self.check()
            self.machine.engine.admission.handlers[Release](session, Release((self.open.pop(key),)))

    def keeping(self, session: Any, reply: Any) -> Any:
        def keep(request: int, value: Any, error: Any) -> None:
            if isinstance(value, np.ndarray):
                self.in_place += not value.flags.writeable
                self.answers[session, request] = (value, value.copy())
                value = value.copy()
            reply(request, value, error)

        keep.held = True  # type: ignore[attr-defined]
        return keep

    def check(self) -> None:
        for session, request in self.open:
            if (session, request) in self.answers:
                array, value = self.answers[session, request]
                assert np.array_equal(array, value, equal_nan=value.dtype.kind in "fc"), f"request {request} changed"


@pytest.mark.parametrize("seed", range(1, 5))
def test_what_is_held_never_changes_in_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Held(monkeypatch)
    assert check_seed(seed) == []
