"""Global tensors: made, read, written, refused."""

from __future__ import annotations

import asyncio
import copy
import pickle  # noqa: TID251 - shows that a global tensor is not pickled

import numpy as np
import pytest

import tensord as td
from tensord.client.global_tensors.tensor import GlobalTensor
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.errors import MetadataTypeError
from tensord.interpreter.wire.message_kinds import ATOMIC, TO_DEVICE

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def session(make_session):
    return make_session(devices=["cpu:0", "sim:0", "sim:1", "sim:2"])


@pytest.fixture
def pair():
    return td.placement(["sim:0", "sim:1"])


def test_it_is_a_tensor_in_parts(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    assert isinstance(x, Tensor)
    assert type(x) is GlobalTensor
    assert (x.shape, x.dtype, x.ndim, x.nbytes, len(x)) == ((4, 3), np.dtype(float), 2, 96, 4)
    assert (x.placement, x.device, x.layout) == (pair, pair, (td.split(0),))
    assert [part.tolist() for part in x.parts()] == [ROWS[:2].tolist(), ROWS[2:].tolist()]
    assert {"sim:0": "valid", "sim:1": "valid"}.items() <= x.residency().items()
    assert x.is_ready()
    assert x.error is None
    x.wait()
    assert repr(x) == "<global tensor float64[4, 3] split(0) on sim:0, sim:1, ready>"
    assert str(x) == str(ROWS)
    assert "split(0)" in x._repr_html_()


def test_its_value_is_put_together_in_every_form(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(1))
    np.testing.assert_array_equal(x.numpy(), ROWS)
    assert x.tolist() == ROWS.tolist()
    assert float(x[0, 1]) == 1.0
    assert x.sum().item() == ROWS.sum()
    assert bool((x == ROWS[1, 1]).any())
    np.testing.assert_array_equal(session.fetch([x, x[0], session.asarray(1.0)])[1], ROWS[0])
    integers = session.global_tensor([5, 6], pair, td.partial("sum"))
    assert [part.tolist() for part in integers.parts()] == [[5, 6], [0, 0]]
    assert integers.tolist() == [5, 6]

    async def read():
        await x
        return await x.numpy_async(), await x[0, 0].item_async(), await x.is_ready_async(), await x.error_async()

    array, number, ready, error = asyncio.run(read())
    np.testing.assert_array_equal(array, ROWS)
    assert (number, ready, error) == (0.0, True, None)


def test_each_device_gets_only_its_part(session, pair):
    x = session.global_tensor(np.zeros(1000), pair, td.split(0))
    x.wait()
    held = {(row["home"], row["bytes"]) for row in session._core.answers.query("tensors")}
    assert held == {("sim:0", 4000), ("sim:1", 4000)}


def test_parts_that_are_there_become_a_global_tensor(session, pair):
    parts = [session.asarray(ROWS[:3], "sim:0"), session.asarray(ROWS[3:], "sim:1")]
    with pytest.raises(td.MetadataError, match=r"the part on sim:0 is float64\[3, 3\], but must be .*\[2, 3\]"):
        session.global_tensor(parts=parts, placement=pair, layout=td.split(0))
    parts = [session.asarray(ROWS[:2], "sim:0"), session.asarray(ROWS[2:], "sim:1")]
    x = session.global_tensor(parts=parts, placement=pair, layout=td.split(0))
    parts[0][...] = 0
    np.testing.assert_array_equal(x.numpy(), ROWS)
    with pytest.raises(td.MetadataError, match="the part for sim:0 is on sim:1: use to_device"):
        session.global_tensor(parts=parts[::-1], placement=pair, layout=td.split(0))
    with pytest.raises(td.MetadataError, match="expected 2 parts, got 1"):
        session.global_tensor(parts=parts[:1], placement=pair, layout=td.split(0))
    for wrong, name in ((3, "int"), (parts[0], "Tensor"), (np.array(1.0), "ndarray")):
        with pytest.raises(MetadataTypeError, match=f"parts must be a list of tensors, not {name}"):
            session.global_tensor(parts=wrong, placement=pair)


def test_parts_are_cast_to_a_dtype_that_is_given(session, pair):
    parts = [session.asarray([1.5, 2.0], device=name) for name in pair.names]
    x = session.global_tensor(parts=iter(parts), placement=pair, layout=td.split(0), dtype="int32")
    assert (x.dtype, x.layout, x.tolist()) == (np.dtype("int32"), (td.split(0),), [1, 2, 1, 2])


def test_its_own_placement_is_where_parts_are_brought(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    assert x.prefetch(x.device) is x
    for tensor in (x, session.asarray(1.0)):
        with pytest.raises(MetadataTypeError, match=r"expected the name of one device, got placement\(\['sim:1"):
            tensor.prefetch(td.placement(["sim:1"]))


def test_a_plain_tensor_becomes_a_global_one(session, pair):
    plain = session.asarray(ROWS, "sim:1")
    x = session.global_tensor(plain, pair, td.split(0))
    plain += 1
    np.testing.assert_array_equal(x.numpy(), ROWS)
    np.testing.assert_array_equal(plain.to_device(pair).numpy(), ROWS + 1)
    np.testing.assert_array_equal(session.xp.asarray(ROWS, device=pair).numpy(), ROWS)
    assert session.xp.zeros((2, 2), device=x.device).layout == (td.broadcast,)
    np.testing.assert_array_equal(session.random.normal((8,), seed=3, device=pair).numpy(),
                                  session.random.normal((8,), seed=3).numpy())  # fmt: skip


def test_new_tensors_are_global_under_a_placement(session, pair):
    assert session.placement is None
    before = session.xp.zeros(3)
    session.placement = pair
    x = session.xp.zeros(3)
    assert (x.device, before.device) == (pair, "cpu:0")
    assert session.xp.asarray(ROWS).device == session.asarray(ROWS).device == session.random.uniform(3).device == pair
    assert session.xp.__array_namespace_info__().default_device() == pair
    assert session.xp.arange(3, device="sim:2").device == "sim:2"
    session.placement = None
    assert session.xp.zeros(3).device == "cpu:0"
    with pytest.raises(td.MetadataError, match="unknown device 'sim:7'"):
        session.placement = td.placement(["sim:7"])
    with pytest.raises(td.MetadataError, match="expected a placement"):
        session.placement = "sim:0"


def test_writes_in_place_reach_each_part(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    y = session.global_tensor(ROWS, pair, td.split(1))
    same, before = x, x.copy()
    x += y
    x *= 2
    x[1] = -1
    x[:, 2] = y[:, 0]
    expected = (ROWS + ROWS) * 2
    expected[1] = -1
    expected[:, 2] = ROWS[:, 0]
    assert x is same
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(before.numpy(), ROWS)
    x[...] = y
    np.testing.assert_array_equal(x.numpy(), ROWS)
    assert x.layout == (td.split(0),)
    session.call("add", [x, y], out=[y])
    np.testing.assert_array_equal(y.numpy(), ROWS * 2)


def test_a_write_casts_within_a_kind_as_for_plain_tensors(session, pair):
    x = session.global_tensor(ROWS.astype("float32"), pair, td.split(0))
    x += session.global_tensor(ROWS, pair, td.split(1))
    assert (x.dtype, x.tolist()) == (np.dtype("float32"), (ROWS * 2).tolist())
    n = session.global_tensor(np.arange(4), pair)
    with pytest.raises(td.MetadataError, match="does not fit out="):
        n /= 2


def test_indices_may_be_global(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    indices = session.global_tensor([2, 0], pair, td.split(0))
    np.testing.assert_array_equal(x[indices].numpy(), ROWS[[2, 0]])
    np.testing.assert_array_equal(x[x > 4].numpy(), ROWS[ROWS > 4])
    x[indices] = 0.0
    assert x.sum().item() == ROWS[[1, 3]].sum()


def test_numbers_mix_with_global_tensors_and_plain_tensors_do_not(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    np.testing.assert_array_equal((2 - x * np.float64(3)).numpy(), 2 - ROWS * 3)
    np.testing.assert_array_equal((x * session.asarray(3.0)).numpy(), ROWS * 3)
    plain = session.asarray(ROWS)
    for call in (lambda: x + plain, lambda: plain + x, lambda: session.xp.matmul(x, plain), lambda: x.__iadd__(plain)):
        with pytest.raises(td.MetadataError, match=r"use session.global_tensor.*test_global_tensors.py"):
            call()
    with pytest.raises(td.MetadataError, match="out= is a tensor of one device"):
        plain += x


def test_operands_on_two_placements_are_refused(session, pair):
    x = session.global_tensor(ROWS, pair)
    y = session.global_tensor(ROWS, td.placement(["sim:1", "sim:2"]))
    with pytest.raises(td.MetadataError, match=r"on two placements.*to_global.*test_global_tensors.py"):
        _ = x + y
    np.testing.assert_array_equal((x + y.to_global(pair)).numpy(), 2 * ROWS)
    with pytest.raises(td.MetadataError, match="device= is a placement"):
        session.call("negative", [x], device="sim:0")


def test_errors_of_the_call_are_those_of_plain_tensors(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    plain = session.asarray(ROWS)
    for call in (lambda x: x @ x, lambda x: x + 2j**0 * np.zeros(2), lambda x: session.xp.sum(x, axis=5)):
        texts = []
        for tensor in (plain, x):
            with pytest.raises(td.MetadataError) as raised:
                call(tensor)
            texts.append(raised.value.message)
        assert texts[0] == texts[1]


@pytest.mark.parametrize(("values", "layout", "text"), [
    (ROWS, td.split(2), "out of bounds"),
    (ROWS, (td.split(0), td.split(1)), "grid dimensions"),
    (ROWS, "split", "a layout must be"),
    (np.zeros(2, bool), td.partial("sum"), "not defined"),
    (["a"], td.broadcast, "not a number"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_at_the_line(session, pair, values, layout, text):
    with pytest.raises(td.MetadataError, match=f"{text}.*test_global_tensors.py"):
        session.global_tensor(values, pair, layout)


def test_it_is_no_array_of_another_library(session, pair):
    x = session.global_tensor(ROWS, pair)
    for refused in (lambda: np.from_dlpack(x), x.cupy):
        with pytest.raises(BufferError, match=r"on several devices: take .numpy\(\), or one of .parts\(\)"):
            refused()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(x)
    other = copy.deepcopy(x)
    other += 1
    np.testing.assert_array_equal(x.numpy(), ROWS)


def test_its_parts_go_with_it(session, pair):
    x = session.global_tensor(ROWS, pair)
    x.release()
    x.release()
    assert "released" in repr(x)
    for use in (x.numpy, lambda: x + 1, x.wait):
        with pytest.raises(td.ProtocolError, match="was released"):
            use()
    y = session.global_tensor(ROWS, pair)
    y.wait()
    del y
    session.sync()
    assert session.stats()["session"]["tensors"] == 0


def test_a_context_holds_its_parts(session, pair):
    x = session.global_tensor(ROWS, pair)
    with session.context() as context:
        dropped, named = x + 1, x + 2
        kept = context.keep(x + 3)
        context["named"] = named
        assert context["named"] is named
    np.testing.assert_array_equal(kept.numpy(), ROWS + 3)
    for gone in (dropped, named):
        with pytest.raises(td.ProtocolError, match="context ended"):
            gone.numpy()


def test_side_effects_get_the_whole_value(session, pair, capsys):
    x = session.global_tensor([1, 2, 3], pair, td.split(0))
    seen = []
    session.effect(lambda array: seen.append(array.tolist()), x)
    session.print("x =", x)
    session.check_chain()
    session.sync()
    assert seen == [[1, 2, 3]]
    assert capsys.readouterr().out == "x = [1 2 3]\n"


def test_a_tensor_of_another_session_is_refused(session, make_session, pair):
    x = session.global_tensor(ROWS, pair)
    other = make_session(devices=["cpu:0", "sim:0", "sim:1"])
    with pytest.raises(td.MetadataError, match="another session"):
        other.xp.negative(x)
    with pytest.raises(td.MetadataError, match="another session"):
        _ = other.global_tensor(ROWS, pair) + x


@pytest.mark.parametrize("layout", [td.split(0), td.broadcast, td.partial("sum")], ids=str)
def test_asarray_of_a_global_tensor_moves_nothing(make_session, pair, layout):
    session = make_session(devices=["cpu:0", "sim:0", "sim:1"], strict=True)
    x = session.global_tensor(ROWS, pair, layout)
    for made in (session.asarray(x), session.asarray(x, pair), session.asarray(x, dtype="float64")):
        assert (made.layout, made.placement, made is x) == ((layout,), pair, False)
        made[...] = 0.0
    np.testing.assert_array_equal(x.numpy(), ROWS)


def test_where_placement_is_strict_only_the_user_moves_bytes(make_session, pair):
    session = make_session(devices=["cpu:0", "sim:0", "sim:1"], strict=True)
    x = session.global_tensor(ROWS, pair, td.split(0))
    np.testing.assert_array_equal((x + 1 + x.copy()).numpy(), 2 * ROWS + 1)
    y = session.global_tensor(ROWS, pair, td.split(1))
    with pytest.raises(td.MetadataError, match=r"placement is strict.*split\(1\).*use to_global"):
        session.xp.sort(y, axis=1)
    with pytest.raises(td.MetadataError, match=r"placement is strict.*split\(1\).*use to_global"):
        _ = x + y
    np.testing.assert_array_equal((x + y.to_global(layout=td.split(0))).numpy(), 2 * ROWS)


def test_what_data_decide_is_equal_everywhere(session, pair):
    x = session.global_tensor([3, 1, 3, 2], pair, td.split(0))
    found = session.xp.unique_values(x)
    assert "of unknown shape broadcast" in repr(found)
    more = found * 2
    assert more.tolist() == [2, 4, 6]
    assert (found.shape, more.shape) == ((3,), (3,))
    assert found.to_global(layout=td.split(0)).parts()[1].tolist() == [3]


def test_data_may_decide_what_is_written_to_parts(session, pair):
    """The call waits for the shape, since the target's layout cuts the value."""
    x = session.global_tensor([1.0, 2.0, 3.0], pair, td.split(0))
    mask = x > 1.0
    x[session.xp.nonzero(mask)[0]] = 7.0
    assert x.tolist() == [1.0, 7.0, 7.0]
    x[mask] = x[mask] * 2.0
    assert x.tolist() == [1.0, 14.0, 14.0]
    w = session.global_tensor(np.zeros(2), pair, td.split(0))
    w += x[mask]
    assert (w.tolist(), w.layout) == ([14.0, 14.0], (td.split(0),))
    with pytest.raises(td.MetadataError, match="do not broadcast"):
        w += x[x > 100.0]
    assert w.tolist() == [14.0, 14.0]


def test_parts_and_copies_are_taken_at_once(session, pair):
    """All parts are read in one group, into which no write of another session comes."""
    x = session.global_tensor(ROWS, pair, td.split(0))
    session.sync()
    for take in (x.parts, x.copy):
        session.flush()
        kept = take()
        (group,) = session._core.outbox.messages
        assert group[0] == ATOMIC
        assert [message[0] for message in group[1]] == [TO_DEVICE, TO_DEVICE]
        del kept


@pytest.mark.parametrize(
    "layout",
    [
        (td.split(0), td.split(1)),
        (td.split(1), td.split(0)),
        (td.split(0), td.split(0)),
        (td.split(2), td.broadcast),
        (td.split(1), td.split(1)),
    ],
    ids=str,
)
def test_dropout_of_shares_drops_what_one_device_would_and_moves_nothing(make_session, layout):
    session = make_session(devices=["cpu:0", *(f"sim:{n}" for n in range(4))])
    array = np.random.default_rng(0).random((7, 5, 6)).astype(np.float32)
    x = session.global_tensor(array, td.placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]]), layout)
    expected = session.nn.dropout(session.asarray(array), 9, rate=0.4)
    assert session.explain(lambda x: session.nn.dropout(x, 9, rate=0.4), x).bytes == 0
    found = session.nn.dropout(x, 9, rate=0.4)
    assert found.layout == layout
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
