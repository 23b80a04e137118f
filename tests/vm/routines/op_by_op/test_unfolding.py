"""A run as the messages of its ops: ids, releases, results, side effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.numbers import CONSTANT, PARAMETER
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.forms import decode_message
from tensord.interpreter.wire.locations import LINE_BITS
from tensord.interpreter.wire.messages import Call, Chain, Effect, Release, Signature, ToDevice
from tensord.vm.model.session import rest_of_run

from ....each_case import each_case
from ...bare_engine import Bare, Client, array_of
from ...parts import Parts
from ...programs import ONE, link, run_message


class Unfolded:
    """The messages of one run, not admitted, and its ids. Sources are uploaded."""

    def __init__(
        self,
        program: Program,
        numbers: Sequence[Any] = (),
        effects: Sequence[Any] = (),
        devices: Sequence[str] = ("cpu:0",),
        location: int = 1,
    ) -> None:
        self.bare: Bare = Parts("cpu:0", "sim:0")
        self.client: Client = self.bare.client()
        client = self.client
        self.inputs = [client.upload([1.0]) for _ in program.parameters]
        self.captured = [client.upload([1.0]) for _ in program.captured]
        routine = link(client, program, self.captured, devices, passes=("none",))
        self.newest = client.session.newest
        run = run_message(client, routine, program, self.inputs, numbers, effects)
        self.outputs = tuple(run.outputs)
        self.bare.engine.take(client.session, [array_of(run._replace(location=location))])
        self.messages = [decode_message(array) for array in rest_of_run(client.session, 1 << 20)]

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.messages if type(message) is kind]

    def inside(self, rank: int) -> int:
        """The id of a variable that the steps make."""
        return self.newest + 1 + rank


def test_variables_of_steps_get_the_ids_behind_the_newest_one_in_their_order() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    w = builder.captured(ONE)
    (b,) = builder.op("add", [a, w])
    found = Unfolded(builder.finish([b]))
    first, second = found.of(Call)
    assert (first.inputs, first.outputs) == ((found.inputs[0],), (found.inside(0),))
    assert (second.inputs, second.outputs) == ((found.inside(0), found.captured[0]), (found.inside(1),))
    assert found.outputs == (found.inside(2),)


def test_a_write_in_place_names_the_variable_and_makes_no_id() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    (a,) = builder.op("add", [a, a], into=[a])
    (x,) = builder.op("add", [x, a], into=[x])
    (b,) = builder.op("negative", [x])
    found = Unfolded(builder.finish([b]))
    calls = found.of(Call)
    assert [call.outputs for call in calls] == [
        (found.inside(0),),
        (found.inside(0),),
        (found.inputs[0],),
        (found.inside(1),),
    ]
    assert calls[3].inputs == (found.inputs[0],)


def test_numbers_stand_in_their_slots() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    n, c = builder.number("float", PARAMETER), builder.number("int", CONSTANT, value=2)
    (a,) = builder.op("multiply", [x, ~builder.number("float", "add", [n, c])])
    (b,) = builder.op("add", [a, ~c])
    found = Unfolded(builder.finish([b]), (0.5,))
    assert [call.inputs[1] for call in found.of(Call)] == [2.5, 2]


@each_case(
    ("uses", "released"),
    [
        ([("negative", [0])], [0]),  # inputs from outside are never released
        ([("negative", [0]), ("negative", [1])], [0, 0b1]),
        ([("negative", [0]), ("add", [1, 1])], [0, 0b01]),  # once, though it is there twice
        ([("negative", [0]), ("add", [0, 1])], [0, 0b10]),
        ([("negative", [0]), ("negative", [1]), ("add", [1, 2])], [0, 0, 0b11]),
        ([("negative", [0]), ("negative", [0])], [0b10, 0]),  # an unused result dies with its op
    ],
)
def test_a_variable_dies_with_its_last_use(uses: list[tuple[str, list[int]]], released: list[int]) -> None:
    builder = Builder()
    values = [builder.parameter(ONE)]
    for op, operands in uses:
        values += builder.op(op, [values[operand] for operand in operands])
    found = Unfolded(builder.finish([values[-1]]))
    assert [call.released for call in found.of(Call)] == released
    assert not found.of(Release)


def test_a_variable_written_in_place_last_dies_behind_the_write() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    builder.op("add", [x, x], into=[a])
    (b,) = builder.op("negative", [x])
    found = Unfolded(builder.finish([b]))
    assert [call.released for call in found.of(Call)] == [0, 0b100, 0]


def test_operands_beyond_the_bits_of_a_call_are_released_behind_it() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    inner = [builder.op("negative", [x])[0] for _ in range(70)]
    (total,) = builder.op("concat", inner)
    found = Unfolded(builder.finish([total]))
    last = found.of(Call)[-1]
    (behind,) = found.of(Release)
    assert last.released == (1 << 64) - 1
    assert sorted(behind.ids) == [found.inside(rank) for rank in range(64, 70)]
    assert found.messages[-1] is behind


@each_case("count", [62, 63, 64, 65, 70])
def test_a_call_of_many_operands_releases_them_all(count: int) -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (total,) = builder.op("concat", [builder.op("negative", [x])[0] for _ in range(count)])
    program = builder.finish([total])
    bare = Bare()
    client = bare.client()
    x = client.upload([1.0])
    routine = link(client, program)
    for _ in range(2):
        run = run_message(client, routine, program, [x])
        client.send(run)
        assert client.fetch(run.outputs[0]) == [-1.0] * count
    assert len(client.session.tensors) == 3


def test_a_move_goes_to_the_device_of_its_slot_and_what_it_moves_dies_behind_it() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    moved = builder.move(a, 1)
    found = Unfolded(builder.finish([moved]), devices=("cpu:0", "sim:0"))
    (move,) = found.of(ToDevice)
    assert (move.id, move.output, move.device) == (found.inside(0), found.inside(1), "sim:0")
    assert found.messages[-1] == Release((found.inside(0),))


def test_side_effects_are_in_their_order_each_with_its_chain_callback_and_request() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    builder.print(["a", None], [a])
    builder.effect(0, [x, a])
    (b,) = builder.op("negative", [x])
    builder.effect(1, [])
    found = Unfolded(builder.finish([b]), effects=((7, None, 50), (8, print, 0), (7, len, 51)))
    effects = found.of(Effect)
    assert [effect[1:4] for effect in effects] == [(7, None, 50), (8, print, 0), (7, len, 51)]
    assert [effect.tolerant for effect in effects] == [True, False, False]
    assert [effect.ids for effect in effects] == [(found.inside(0),), (found.inputs[0], found.inside(0)), ()]
    kinds = [type(message) for message in found.messages]
    assert kinds == [Call, Effect, Effect, Release, Call, Effect]


def test_a_message_has_the_line_of_its_step_and_the_spans_of_the_run() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x], location=5)
    (b,) = builder.op("negative", [a])
    found = Unfolded(builder.finish([b]), location=(3 << LINE_BITS) | 9)
    assert [call.location for call in found.of(Call)] == [(3 << LINE_BITS) | 5, 3 << LINE_BITS]


def test_results_are_renamed_at_the_end_and_keep_what_they_are() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    (b,) = builder.op("negative", [a])
    program = builder.finish([b, a])
    bare = Bare()
    client = bare.client()
    routine = link(client, program)
    run = run_message(client, routine, program, [client.upload([3.0])])
    client.send(run)
    assert [client.fetch(id_) for id_ in run.outputs] == [[3.0], [-3.0]]
    assert client.session.newest == run.outputs[-1]
    assert client.fetch(client.call("negative", run.outputs[0])) == [-3.0]


def test_each_op_has_one_signature_whatever_the_number_of_runs() -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    (b,) = builder.op("negative", [a])
    program = builder.finish([b])
    bare = Bare()
    client = bare.client()
    routine, x = link(client, program), client.upload([1.0])
    client.send(Signature(1, "negative", (), (((1,), "float64"),), "cpu:0", None))
    for _ in range(5):
        client.send(run_message(client, routine, program, [x]))
    assert client.session.operands == 3
    assert len(client.session.plans) == 3


def test_a_chain_keeps_its_id_though_values_of_runs_have_it_too() -> None:
    """A chain's id does not count as the newest id of the session."""
    builder = Builder()
    x = builder.parameter(ONE)
    (a,) = builder.op("negative", [x])
    builder.effect(0, [a])
    program = builder.finish([])
    bare = Bare()
    client = bare.client()
    routine, x = link(client, program), client.upload([1.0])
    client.send(Chain(chain := client.new()))
    seen: list[float] = []
    for _ in range(2):
        client.send(run_message(client, routine, program, [x], (), ((chain, lambda a: seen.append(float(a[0])), 0),)))
        bare.drain()
    assert seen == [-1.0, -1.0]


MOVES = """\
tensord program 1
parameter %0 x: float64[1] on d0
%1: float64[1] = negative %0 on d0
%2: float64[1] = to_device %1 on d0
%3: float64[1] = to_device %2 on d0
%4: float64[1] = negative %3 on d0
return %4"""


def test_an_inner_value_that_got_no_id_takes_no_chain_with_it() -> None:
    """Ids of chains may lie among those of a run's inner values; a quota may leave some of these without one."""
    program = Program.parse(MOVES)
    bare = Bare()
    client = bare.client(tensors=1)
    x = client.upload([1.0])
    routine = link(client, program)
    chains = [client.new() for _ in range(4)]
    client.send(*map(Chain, chains))
    for _ in range(2):
        client.send(run_message(client, routine, program, [x], (), ()))
        bare.drain()
        assert {*client.session.chains} == {*chains}
    client.send(Release((chains[0],)))
    assert {*client.session.chains} == {*chains[1:]}
