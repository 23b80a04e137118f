"""Ops that run inline, compared with ops on streams: both leave the same state for every message.

Each message goes to two engines. One runs small ops at once, the other gives each to a stream and is drained after
every message. Then tensors, values, errors, ids, accounts, names and memory are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.wire.limits import Limits
from tensord.interpreter.wire.message_kinds import CALL, RELEASE
from tensord.interpreter.wire.messages import Call, Fetch, Publish, Release, Signature, ToDevice, Upload, Wait
from tensord.vm.admission.inline import END
from tensord.vm.memory.binding import bind
from tensord.vm.model.tensor import Binding, VmTensor
from tensord.vm.reporting.invariants import violations

from ...each_case import each_case
from ...sampling import sampled
from ..bare_engine import Bare, Client
from ..parts import Parts

PAIR = ((2,), "float64")
WHOLE = ((2,), "int64")
FLAT = ((4,), "float64")
# Signatures by number.
ADD, NEGATE, ADD_SCALAR, ADD_INTO, FLIP, DIVIDE, UNKNOWN_OP, SET, DROPOUT, LOSING, TRUE, NEGATE_PENDING = range(1, 13)
SIGNATURES = (
    Signature(ADD, "add", (), (PAIR, PAIR), "cpu:0", None),
    Signature(NEGATE, "negative", (), (PAIR,), "cpu:0", None),
    Signature(ADD_SCALAR, "add", (), (PAIR, "float"), "cpu:0", None),
    Signature(ADD_INTO, "add", (), (PAIR, PAIR), "cpu:0", (PAIR,)),
    Signature(FLIP, "flip", (), (PAIR,), "cpu:0", None),
    Signature(DIVIDE, "take", (("axis", 0),), (PAIR, WHOLE), "cpu:0", None),  # its kernel checks the indices
    Signature(UNKNOWN_OP, "?", (), (PAIR,), "cpu:0", None),  # so short that no known name is similar
    Signature(SET, "setitem", (("index", (0,)),), (PAIR, "float"), "cpu:0", (PAIR,)),
    Signature(DROPOUT, "negative", (), (FLAT,), "cpu:0", None),
    Signature(LOSING, "unique_values", (), (PAIR,), "cpu:0", None),
    Signature(TRUE, "greater", (), (PAIR, PAIR), "cpu:0", None),
    Signature(NEGATE_PENDING, "negative", (), (None,), "cpu:0", None),
)
X, Y, INDICES, WRONG_INDICES, VIEW, NAMED, MAPPED, FAILED, ALIAS, OWN = range(1, 11)
NEW = 20
SCALARS = {
    "nan": float("nan"),
    "true": True,
    "float": 1.0,
    "negative": -1,
    "text": "1",
    "none": None,
    "list": [1],
    "bytes": b"1",
    "huge": 1 << 70,
    "zero": 0,
    "unknown": 999,
}


def prepare(client: Client) -> None:
    """The same tensors in both engines."""
    client.send(*SIGNATURES)
    for id_, values in ((X, [1.0, 2.0]), (Y, [3.0, 4.0])):
        client.send(Upload(id_, (2,), "float64", "cpu:0", np.array(values), 1))
    for id_, found in ((INDICES, [1, 0]), (WRONG_INDICES, [7, 0])):
        client.send(Upload(id_, (2,), "int64", "cpu:0", np.array(found), 1))
    client.send([CALL, FLIP, (X,), (VIEW,), 0, 1])
    client.send(Upload(NAMED, (2,), "float64", "cpu:0", np.array([5.0, 6.0]), 1))
    client.send(Publish(("shared",), (NAMED,), 900))
    client.send(Upload(MAPPED, (2,), "float64", "cpu:0", np.array([7.0, 8.0]), 1))
    client.bare.drain()
    copy = next(iter(client.session.tensors[MAPPED].storage.copies.values()))
    copy.client_mappings = 1
    client.send([CALL, DIVIDE, (X, WRONG_INDICES), (FAILED,), 0, 1])
    client.send(ToDevice(Y, ALIAS, "cpu:0", 1))
    client.send(Upload(OWN, (2,), "float64", "cpu:0", np.array([9.0, 0.5]), 1))
    client.bare.drain()
    client.bare.errors.clear()


def value_of(tensor: VmTensor) -> Any:
    """The content of a tensor: values, or type and text of an error."""
    (copy,) = tensor.storage.copies.values()
    if copy.poison is not None:
        return told(copy.poison)
    assert copy.buffer is not None
    return repr(np.array(bind(Binding(copy, tensor, tensor.offset, tensor.strides))).tolist())  # a NaN is a NaN


def told(error: TensordError | None) -> Any:
    return None if error is None else (type(error).__name__, str(error), error.op, error.location)


def state(client: Client) -> dict[str, Any]:
    """The state that must be the same on both ways."""
    engine, session = client.bare.engine, client.session
    device = engine.devices["cpu:0"]
    tensors = session.tensors.items()
    return {
        "tensors": {
            id_: (t.meta, t.home.name, t.offset, t.strides, t.holders, t.storage.sharers) for id_, t in tensors
        },
        "values": {id_: value_of(t) for id_, t in tensors},
        "versions": {id_: t.storage.version for id_, t in tensors},
        "charged": {id_: t.storage.account is session.account for id_, t in tensors},
        "errors": [told(error) for error in client.bare.errors],
        "answers": {request: told(error) for request, (_, error) in client.answers.items()},
        "newest": session.newest,
        "ids": engine.scheduler.ids,
        "retired": engine.scheduler.retired,
        "failed": (engine.scheduler.failed, session.counts.errors),
        "account": (session.account.bytes, session.account.names),
        "names": {name: value_of(tensor) for name, tensor in engine.directory.named()},
        "memory": (device.planned, device.backend.allocated, len(device.unreserved), dict(device.candidates)),
        "live": (len(engine.live), len(session.live)),
    }


class Both:
    """Two clients, on the two engines."""

    def __init__(self, **limits: int) -> None:
        self.clients = [Bare(inline=inline).client(**limits) for inline in (True, False)]
        self.each(prepare)

    def each(self, act: Callable[[Client], object], name: str = "") -> None:
        for client in self.clients:
            act(client)
            client.bare.drain()
        self.compare(name)

    def send(self, message: Any, name: str = "") -> None:
        self.each(lambda client: client.send(message), name)

    def compare(self, name: str = "") -> None:
        inline, long = (state(client) for client in self.clients)
        for what, found in inline.items():
            assert found == long[what], f"{what} {name}"
        assert not [problem for client in self.clients for problem in violations(client.bare.engine)]


def messages() -> dict[str, Any]:
    """A table of CALLs: in order, and not."""
    table: dict[str, Any] = {
        "an op": [CALL, ADD, (X, Y), (NEW,), 0, 1],
        "a tuple": (CALL, ADD, [X, Y], [NEW], 0, 1),
        "one operand": [CALL, NEGATE, (X,), (NEW,), 0, 1],
        "one twice": [CALL, ADD, (X, X), (NEW,), 0, 1],
        "one twice that dies": [CALL, ADD, (X, X), (NEW,), 0b11, 1],
        "one twice that dies once": [CALL, ADD, (X, X), (NEW,), 0b01, 1],
        "a scalar": [CALL, ADD_SCALAR, (X, 2.5), (NEW,), 0, 1],
        "a nan": [CALL, ADD_SCALAR, (X, float("inf")), (NEW,), 0, 1],
        "a scalar that is released": [CALL, ADD_SCALAR, (X, 2.5), (NEW,), 0b10, 1],
        "a view op": [CALL, FLIP, (Y,), (NEW,), 0, 1],
        "a view as operand": [CALL, ADD, (VIEW, Y), (NEW,), 0, 1],
        "a view that dies": [CALL, ADD, (VIEW, Y), (NEW,), 0b1, 1],
        "the base of a view dies": [CALL, NEGATE, (X,), (NEW,), 0b1, 1],
        "the alias of another dies": [CALL, NEGATE, (ALIAS,), (NEW,), 0b1, 1],
        "a named operand dies": [CALL, NEGATE, (NAMED,), (NEW,), 0b1, 1],
        "a client-mapped operand": [CALL, NEGATE, (MAPPED,), (NEW,), 0, 1],
        "a client-mapped operand dies": [CALL, NEGATE, (MAPPED,), (NEW,), 0b1, 1],
        "the first dies": [CALL, ADD, (Y, MAPPED), (NEW,), 0b1, 1],
        "both die": [CALL, ADD, (MAPPED, NAMED), (NEW,), 0b11, 1],
        "the result dies": [CALL, ADD, (X, Y), (NEW,), 0b100, 1],
        "all die": [CALL, ADD, (X, Y), (NEW,), 0b111, 1],
        "bits of nobody": [CALL, ADD, (X, Y), (NEW,), 0b1000, 1],
        "another size dies": [CALL, TRUE, (X, Y), (NEW,), 0b11, 1],
        "a failed operand": [CALL, ADD, (FAILED, Y), (NEW,), 0, 1],
        "a failed operand dies": [CALL, ADD, (FAILED, Y), (NEW,), 0b1, 1],
        "a kernel that raises": [CALL, DIVIDE, (X, WRONG_INDICES), (NEW,), 0, 1],
        "a kernel that raises, and its operands die": [CALL, DIVIDE, (X, WRONG_INDICES), (NEW,), 0b11, 1],
        "a kernel that raises, and its result dies": [CALL, DIVIDE, (X, WRONG_INDICES), (NEW,), 0b100, 1],
        "a kernel that does not": [CALL, DIVIDE, (X, INDICES), (NEW,), 0, 1],
        "in place": [CALL, ADD_INTO, (X, Y), (OWN,), 0, 1],
        "in place on an operand": [CALL, ADD_INTO, (OWN, OWN), (OWN,), 0, 1],
        "in place of what a client sees": [CALL, ADD_INTO, (X, Y), (MAPPED,), 0, 1],
        "in place of what a client sees, which is an operand": [CALL, ADD_INTO, (MAPPED, X), (MAPPED,), 0, 1],
        "in place of a part of what a client sees": [CALL, SET, (MAPPED, 9.0), (MAPPED,), 0, 1],
        "in place on a base": [CALL, ADD_INTO, (Y, Y), (X,), 0, 1],
        "in place on a view": [CALL, ADD_INTO, (Y, Y), (VIEW,), 0, 1],
        "in place on an alias": [CALL, ADD_INTO, (X, X), (ALIAS,), 0, 1],
        "in place on a named one": [CALL, ADD_INTO, (X, X), (NAMED,), 0, 1],
        "in place on a failed one": [CALL, ADD_INTO, (X, Y), (FAILED,), 0, 1],
        "in place, and the target dies": [CALL, ADD_INTO, (X, Y), (MAPPED,), 0b100, 1],
        "in place on nothing": [CALL, ADD_INTO, (X, Y), (NEW,), 0, 1],
        "in place on another meta": [CALL, ADD_INTO, (X, Y), (INDICES,), 0, 1],
        "in part": [CALL, SET, (X, 9.0), (X,), 0, 1],
        "data decide": [CALL, LOSING, (X,), (NEW,), 0, 1],
        "a pending signature": [CALL, NEGATE_PENDING, (X,), (NEW,), 0, 1],
        "another meta": [CALL, ADD, (X, INDICES), (NEW,), 0, 1],
        "another shape": [CALL, DROPOUT, (X,), (NEW,), 0, 1],
        "an old result": [CALL, ADD, (X, Y), (X,), 0, 1],
        "a result below the newest": [CALL, ADD, (X, Y), (ALIAS - 1,), 0, 1],
        "an unknown op": [CALL, UNKNOWN_OP, (X,), (NEW,), 0, 1],
        "an unknown signature": [CALL, 99, (X, Y), (NEW,), 0, 1],
        "an unknown line": [CALL, DIVIDE, (X, WRONG_INDICES), (NEW,), 0, 99],
        "no operands": [CALL, ADD, (), (NEW,), 0, 1],
        "one operand too few": [CALL, ADD, (X,), (NEW,), 0, 1],
        "one operand too many": [CALL, ADD, (X, Y, X), (NEW,), 0, 1],
        "no result": [CALL, ADD, (X, Y), (), 0, 1],
        "two results": [CALL, ADD, (X, Y), (NEW, NEW + 1), 0, 1],
        "a result twice": [CALL, ADD, (X, Y), (NEW, NEW), 0, 1],
        "a field too few": [CALL, ADD, (X, Y), (NEW,), 0],
        "a field too many": [CALL, ADD, (X, Y), (NEW,), 0, 1, 1],
        "nothing but a kind": [CALL],
        "all bits": [CALL, ADD, (X, Y), (NEW,), (1 << 63) - 1, 1],
        "huge bits": [CALL, ADD, (X, Y), (NEW,), 1 << 63, 1],
        "vast bits": [CALL, ADD, (X, Y), (NEW,), 1 << 100, 1],
        "the largest id": [CALL, ADD, (X, Y), ((1 << 63) - 1,), 0, 1],
        "operands by name": [CALL, ADD, {"a": X, "b": Y}, (NEW,), 0, 1],
        "an operand by name": [CALL, NEGATE, {X: X}, (NEW,), 0, 1],
        "two operands by name": [CALL, ADD, {X: X, Y: Y}, (NEW,), 0, 1],
        "an operand as bytes": [CALL, NEGATE, bytes([X]), (NEW,), 0, 1],
        "two operands as bytes": [CALL, ADD, bytes([X, Y]), (NEW,), 0, 1],
        "operands in a set": [CALL, ADD, {X, Y}, (NEW,), 0, 1],
        "a result by name": [CALL, ADD, (X, Y), {0: NEW}, 0, 1],
        "a result as bytes": [CALL, ADD, (X, Y), bytes([NEW]), 0, 1],
        "the kind is false": [False, ADD, (X, Y), (NEW,), 0, 1],
        "the kind is a float": [0.0, ADD, (X, Y), (NEW,), 0, 1],
        "operands as text": [CALL, ADD, "ab", (NEW,), 0, 1],
        "a scalar for a tensor": [CALL, ADD, (X, 1.5), (NEW,), 0, 1],
        "a tensor's number for a scalar": [CALL, ADD_SCALAR, (X, Y), (NEW,), 0, 1],
        "an integer for a float": [CALL, ADD_SCALAR, (X, 1), (NEW,), 0, 1],
        "a boolean for a float": [CALL, ADD_SCALAR, (X, True), (NEW,), 0, 1],
        "a release": (RELEASE, (OWN,)),
        "a release in lists": [RELEASE, [OWN]],
        "a release of a base": (RELEASE, (X,)),
        "a release of a view": (RELEASE, (VIEW,)),
        "a release of an alias": (RELEASE, (ALIAS,)),
        "a release of a named one": (RELEASE, (NAMED,)),
        "a release of a client-mapped one": (RELEASE, (MAPPED,)),
        "a release of a failed one": (RELEASE, (FAILED,)),
        "a release of two": (RELEASE, (OWN, INDICES)),
        "a release of one twice": (RELEASE, (OWN, OWN)),
        "a release of nobody": (RELEASE, (NEW,)),
        "a release of nothing": (RELEASE, ()),
        "a release as bytes": (RELEASE, bytes([OWN])),
        "a release by name": (RELEASE, {OWN: OWN}),
        "a release and a field": (RELEASE, (OWN,), 0),
        "a release's kind is true": (True, (OWN,)),
    }
    return table | {" ".join(names): message for names, message in STRANGE.items()}


def strange() -> Iterator[tuple[tuple[str, str], Any]]:
    """Messages with a strange value in one field, by the field's and the value's name."""
    for name, value in SCALARS.items():
        yield ("signature", name), [CALL, value, (X, Y), (NEW,), 0, 1]
        yield ("first operand", name), [CALL, ADD, (value, Y), (NEW,), 0, 1]
        yield ("second operand", name), [CALL, ADD, (X, value), (NEW,), 0, 1]
        yield ("only operand", name), [CALL, NEGATE, (value,), (NEW,), 0, 1]
        yield ("scalar", name), [CALL, ADD_SCALAR, (X, value), (NEW,), 0, 1]
        yield ("operands", name), [CALL, ADD, value, (NEW,), 0, 1]
        yield ("result", name), [CALL, ADD, (X, Y), (value,), 0, 1]
        yield ("results", name), [CALL, ADD, (X, Y), value, 0, 1]
        yield ("target", name), [CALL, ADD_INTO, (X, Y), (value,), 0, 1]
        yield ("bits", name), [CALL, ADD, (X, Y), (NEW,), value, 1]
        yield ("line", name), [CALL, ADD, (X, Y), (NEW,), 0, value]
        yield ("bits and dying operands", name), [CALL, ADD, (X, value), (NEW,), 0b11, 1]
        yield ("release", name), (RELEASE, (value,))
        yield ("releases", name), (RELEASE, value)


STRANGE = dict(strange())
MESSAGES = messages()
FEWER = {" ".join(names) for names in STRANGE} - {" ".join(names) for names in sampled(STRANGE, times=2)}


@each_case("name", [name for name in MESSAGES if name not in FEWER])
def test_both_ways_leave_the_same(name: str) -> None:
    both = Both()
    both.send(MESSAGES[name])
    both.send(MESSAGES["an op"])  # after any message, the next one finds a sound engine
    both.send(Release((NEW, X)))


def test_a_cancelled_session_is_refused_either_way() -> None:
    both = Both()
    both.each(lambda client: client.bare.engine.cancel(client.session))
    for name, message in MESSAGES.items():
        both.send(message, name)


@each_case("name", ["an op", "both die", "the first dies", "a kernel that raises", "in place", "in part"])
@each_case("left", [0, 15, 16])
def test_a_quota_of_bytes_counts_either_way(name: str, left: int) -> None:
    both = Both()

    def tighten(client: Client) -> None:
        client.session.account.limit = client.session.account.bytes + left

    both.each(tighten)
    both.send(MESSAGES[name])
    both.send([CALL, NEGATE, (Y,), (NEW + 5,), 0, 1])


@each_case("name", ["an op", "both die", "the first dies", "one twice that dies", "in place", "all die"])
@each_case("left", [0, 1])
def test_a_quota_of_tensors_counts_either_way(name: str, left: int) -> None:
    both = Both()

    def tighten(client: Client) -> None:
        client.session.account.tensors = len(client.session.tensors) + left

    both.each(tighten)
    both.send(MESSAGES[name])
    both.send([CALL, NEGATE, (Y,), (NEW + 5,), 0, 1])


@each_case("name", ["an op", "both die", "a kernel that raises", "in place"])
def test_memory_that_is_not_there_is_missed_either_way(name: str) -> None:
    both = Both()

    def fill(client: Client) -> None:
        client.bare.device.limit = client.bare.device.allocated

    both.each(fill)
    both.send(MESSAGES[name])


class TestForeign:
    """Tensors that another session made."""

    def share(self, both: Both) -> None:
        for client in both.clients:
            other = client.bare.client()
            client.other = other  # type: ignore[attr-defined]
            made = other.upload([1.0, 2.0])
            other.publish("theirs", ids=(made,))
            client.ids = NEW + 10
            client.lookup("theirs")
            other.release(made)
            client.bare.engine.admission.names.unpublish(["theirs"])
        both.compare()

    def test_an_id_of_another_session_names_nothing_here(self) -> None:
        both = Both()
        for client in both.clients:
            other = client.bare.client()
            other.ids = 400
            other.upload([1.0, 2.0])
        both.send([CALL, NEGATE, (401,), (NEW,), 0, 1])

    def test_who_takes_over_the_memory_of_another_is_charged_for_it(self) -> None:
        both = Both()
        self.share(both)
        theirs = NEW + 11
        both.send([CALL, NEGATE, (theirs,), (NEW + 20,), 0b1, 1])
        accounts = [client.other.session.account.bytes for client in both.clients]  # type: ignore[attr-defined]
        assert accounts == [0, 0]

    def test_not_beyond_its_quota(self) -> None:
        both = Both()
        self.share(both)
        for client in both.clients:
            client.session.account.limit = client.session.account.bytes
        both.send([CALL, NEGATE, (NEW + 11,), (NEW + 20,), 0b1, 1])


@each_case("damaged", [None, (), 0, [], [CALL], {"CALL": 1}])
def test_what_is_no_message_does_not_end_its_batch(damaged: Any) -> None:
    both = Both()
    both.each(lambda client: client.send(damaged, MESSAGES["an op"]))
    assert all(NEW in client.session.tensors for client in both.clients)


def test_a_long_program_leaves_the_same_after_each_message() -> None:
    both = Both()
    for n in range(200):
        names = sorted(MESSAGES)
        message = list(MESSAGES[names[n * 37 % len(names)]])
        if len(message) > 3 and message[3] == (NEW,):
            message[3] = (NEW + n,)
        both.send(message)


class TestWhichWay:
    """The two clients of this file really take two different ways."""

    def test_one_ran_at_once_and_the_other_did_not(self) -> None:
        both = Both()
        for client, instructions in zip(both.clients, (0, 1), strict=True):
            client.send([CALL, ADD, (X, Y), (NEW,), 0, 1])
            assert len(client.bare.engine.live) == instructions
            client.bare.drain()

    @each_case(
        "name", ["in place", "a view as operand", "a scalar", "the first dies", "all die", "a view op", "a release"]
    )
    def test_these_are_taken_by_the_short_one(self, name: str) -> None:
        (client, _) = Both().clients
        engine = client.bare.engine
        assert engine.admission.inline.run(client.session, iter([MESSAGES[name]])) is END

    @each_case(
        "name",
        [
            "a failed operand",
            "in place on a view",
            "bits huge",
            "bits true",
            "an old result",
            "data decide",
            "a release of a view",
            "a release of a named one",
            "a release of a client-mapped one",
            "a release of two",
        ],
    )
    def test_these_are_not_and_have_changed_nothing(self, name: str) -> None:
        (client, _) = Both().clients
        before = state(client)
        assert client.bare.engine.admission.inline.run(client.session, iter([MESSAGES[name]])) is MESSAGES[name]
        assert state(client) == before

    def test_a_view_takes_time_of_its_sessions_turn(self) -> None:
        (client, _) = Both().clients
        engine = client.bare.engine
        before = engine.scheduler.latest
        assert engine.admission.inline.run(client.session, iter([MESSAGES["a view op"]])) is END
        assert engine.scheduler.latest > before

    def test_a_fetch_behind_it_sees_the_result(self) -> None:
        for client in Both().clients:
            client.send([CALL, ADD, (X, Y), (NEW,), 0b11, 1], Fetch(NEW, 5, 1, 0))
            client.bare.drain()
            assert client.answers[5][0].tolist() == [4.0, 6.0]


def test_a_view_whose_base_has_gone_is_not_handed_on() -> None:
    """The view alone uses its memory, but the layout of its elements is not that of a result."""
    both = Both()
    both.send(Release((X,)))
    both.send([CALL, NEGATE, (VIEW,), (NEW,), 0b1, 1])
    assert both.clients[0].fetch(NEW) == [-2.0, -1.0]


@each_case("part", [False, True])
def test_what_has_copies_elsewhere_is_not_handed_on(part: bool) -> None:
    """The copies would count as copies of the result, or of a part of it."""
    client, negate = Client(Parts("cpu:0", "sim:0", inline=True), Limits()), 99
    first = client.signature("getitem", (FLAT,), (("index", (("slice", 0, 2, None),)),))
    client.send(Signature(negate, "negative", (), (PAIR if part else FLAT,), "sim:0", None))

    def negated_elsewhere(id_: int) -> list[float]:
        """The copy that the op needs there stays."""
        seen = client.new() if part else id_
        if part:
            client.send(Call(first, (id_,), (seen,), 0, 1))
        there, result = client.new(), client.new()
        client.send(ToDevice(seen, there, "sim:0", 1), Call(negate, (there,), (result,), 1, 1))
        found = client.fetch(result)
        client.send(Release((result,)), Release((seen,) if part else ()))
        client.bare.drain()
        return found

    x = client.upload([1.0, 2.0, 3.0, 4.0])
    before = negated_elsewhere(x)
    y = client.call("negative", x, meta=FLAT, released=1)
    assert negated_elsewhere(y) == [-value for value in before]


def test_an_operand_that_a_wait_reads_is_not_handed_on() -> None:
    """The wait has not ended: it is about this copy at this version, and keeps no memory that would show it."""
    bare = Bare()
    client = bare.client()
    x, other = client.upload([1.0, 2.0]), client.upload([3.0, 4.0])
    bare.device.compute[0].inline = False
    unfinished = client.call("negative", other, meta=PAIR)
    bare.device.compute[0].inline = True
    copy = next(iter(client.session.tensors[x].storage.copies.values()))
    client.send(Wait((x, unfinished), 900, 1))
    assert (len(copy.readers or ()), copy.uses) == (1, 0)
    y = client.call("negative", x, meta=PAIR, released=1)
    assert copy not in client.session.tensors[y].storage.copies.values()
    assert not violations(bare.engine)
    bare.drain()
    assert client.answers[900][1] is None
    assert client.fetch(y) == [-1.0, -2.0]
