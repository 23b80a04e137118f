"""Host arrays inside the machine: no byte is copied, the machine never writes to them, and releases them in time."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session

from .looking_inside import WAIT, address, allocated, assert_sound, device_of, held, moved, until

SHAPE = (128, 256)
NBYTES = 4 * 128 * 256


def filled(session: Session, value: float = 3, dtype: Any = np.float32) -> Any:
    array = session.empty_host(SHAPE, dtype)
    array[...] = value
    return array


def start_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_tensor_on_the_host_lies_in_the_array_until_it_is_gone(session):
    array = filled(session)
    x = session.asarray(array)
    session.sync()
    assert address(session, x, "cpu:0") == start_of(array)
    assert allocated(session, "cpu:0") == NBYTES
    assert not array.flags.writeable
    y = x.reshape(-1)[5:]  # a view of it
    del x
    session.sync()
    assert not array.flags.writeable
    assert y.numpy()[0] == 3
    del y
    session.sync()
    assert array.flags.writeable
    assert allocated(session, "cpu:0") == 0
    assert device_of(session, "cpu:0").kept().nbytes == 0  # no pool keeps the user's memory


def test_to_a_device_it_is_handed_over_until_the_transfer_has_retired(sim_session):
    s = sim_session
    array = filled(s)
    with held(s, "sim:0", "h2d"):
        x = s.asarray(array, "sim:0")
        y = s.asarray(array, "sim:1")
        y.wait(WAIT)
        assert not array.flags.writeable
    x.wait(WAIT)
    s.sync()
    assert array.flags.writeable
    assert moved(s) == {"sim:0 h2d": (1, NBYTES), "sim:1 h2d": (1, NBYTES)}
    array[...] = 0
    assert (x.numpy()[0, 0], y.numpy()[0, 0]) == (3, 3)


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_what_kernels_trust_is_copied_once_and_handed_back(session, dtype):
    array = filled(session, 1, dtype)
    view = array[:]
    x = session.asarray(array)
    session.sync()
    assert array.flags.writeable
    assert address(session, x, "cpu:0") != start_of(array)
    view[...] = 0
    assert (x.numpy() == 1).all()


def test_a_part_of_less_than_half_is_copied_by_the_machine(session):
    array = session.empty_host((8, *SHAPE), "float32")
    array[...] = 3
    x = session.asarray(array[2:5])
    y = session.asarray(array[2:7])
    session.sync()
    assert address(session, y, "cpu:0") == start_of(array[2:])
    assert address(session, x, "cpu:0") != start_of(array[2:])
    del y
    session.sync()
    assert array.flags.writeable
    assert x.numpy()[0, 0, 0] == 3


@pytest.mark.parametrize("write", ["in place", "a part", "forwarded", "a routine"])
def test_the_machine_never_writes_there(session, write):
    array = filled(session)
    x = session.asarray(array)
    if write == "in place":
        x += 1
    elif write == "a part":
        x[0] = 1.0
    elif write == "forwarded":
        x = x + 1
    else:

        @session.routine
        def step(x):
            x += 1
            return x * 2

        for _ in range(3):
            step(x)
    session.sync()
    assert (array == 3).all()
    assert address(session, x, "cpu:0") != start_of(array)
    assert array.flags.writeable  # no tensor has that value any more
    assert_sound(session)


def test_two_tensors_may_lie_in_one_array(session):
    array = filled(session)
    x, y = session.asarray(array), session.asarray(array)
    x += 1
    session.sync()
    assert address(session, y, "cpu:0") == start_of(array)
    assert not array.flags.writeable
    assert (x.numpy()[0, 0], y.numpy()[0, 0]) == (4, 3)
    y.release()
    session.sync()
    assert array.flags.writeable


def test_a_name_keeps_the_array_beyond_the_session(make_session):
    mine, yours = make_session("local:host arrays"), make_session("local:host arrays")
    array = filled(mine)
    mine.publish("x", mine.asarray(array))
    mine.close()
    gc.collect()
    x = yours.lookup("x")
    yours.unpublish("x")
    assert not array.flags.writeable
    assert x.numpy()[0, 0] == 3
    del x
    yours.sync()
    assert array.flags.writeable


def test_the_end_of_the_machine_hands_everything_back(sim_session):
    s = sim_session
    arrays = [filled(s, n) for n in range(4)]
    tensors = [s.asarray(array, device) for array, device in zip(arrays, 2 * ("cpu:0", "sim:0"), strict=True)]
    del tensors[0]
    s.close()
    gc.collect()
    assert all(array.flags.writeable for array in arrays)


def test_unsent_uploads_are_handed_back_when_the_session_ends(session):
    array = filled(session)
    with session.atomic():
        x = session.asarray(array)
        session.close()
    del x
    gc.collect()
    assert array.flags.writeable


def test_a_limit_of_the_host_concerns_what_lies_in_host_arrays(make_session):
    s = make_session(devices=[{"name": "cpu:0", "memory": 2 * NBYTES}])
    array = filled(s)
    x = s.asarray(array)
    assert s.stats()["devices"]["cpu:0"]["allocated"] == NBYTES
    with pytest.raises(td.DeviceMemoryError):
        s.asarray(np.ones((2, *SHAPE), np.float32)).wait(WAIT)
    assert not array.flags.writeable
    assert x.numpy()[0, 0] == 3


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_tensors_their_values_are_those_of_the_upload(sim_session, seed):
    """Arrays are filled whenever they can be written, and only then."""
    rng, s = random.Random(seed), sim_session
    arrays: list[Any] = [filled(s, 0, rng.choice(["float32", "float64", "int32"])) for _ in range(4)]
    held_now: list[tuple[td.Tensor, float]] = []
    written = 0
    for n in range(1, 120):
        array = rng.choice(arrays)
        if array.flags.writeable:
            array[...] = n
            written += 1
        choice = rng.random()
        if choice < 0.5 or not held_now:
            held_now.append((s.asarray(array[: rng.choice((64, 128))], rng.choice(s.devices)), float(array[0, 0])))
            continue
        at = rng.randrange(len(held_now))
        x, value = held_now[at]
        if choice < 0.6:
            held_now.pop(at)
        elif choice < 0.7:
            x += 1
            held_now[at] = (x, value + 1)
        elif choice < 0.8:
            held_now.append((x + 1, value + 1))
        elif choice < 0.85:
            held_now[at] = (x.to_device(rng.choice(s.devices)), value)
        elif choice < 0.9:
            s.sync()
        else:
            found = x.numpy()
            assert (found == value).all(), (n, found, value)
        del x
    assert all((x.numpy() == value).all() for x, value in held_now)
    assert written > 4
    held_now.clear()
    gc.collect()
    s.sync()
    until(s, lambda: all(array.flags.writeable for array in arrays))
    assert_sound(s)


def test_a_value_that_leaves_for_the_store_hands_its_array_back_and_comes_back_to_other_memory(make_session, tmp_path):
    store = {"name": "store:0", "directory": str(tmp_path), "quota": 64 * NBYTES}
    s = make_session(devices=[{"name": "cpu:0", "memory": 3 * NBYTES}, store])
    arrays = [filled(s, n) for n in range(8)]
    tensors = [s.asarray(array) for array in arrays]
    s.sync(WAIT)
    until(s, lambda: sum(array.flags.writeable for array in arrays) >= 5)
    for array in arrays:
        if array.flags.writeable:
            array[...] = 99
    assert [float(x.numpy()[3, 3]) for x in tensors] == list(range(8))
    tensors[0] += 1.0
    assert tensors[0].numpy()[0, 0] == 1
    tensors.clear()
    s.sync(WAIT)
    until(s, lambda: all(array.flags.writeable for array in arrays))
    assert_sound(s)
