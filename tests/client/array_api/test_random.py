"""`session.random`: seeds, and the numbers of calls, which threads and sessions share or not."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tensord.client.array_api.random import Random
from tensord.client.core.core import RandomState
from tensord.interpreter.errors import MetadataError, MetadataTypeError

from ...each_case import each_case

U64 = np.dtype("uint64")
DRAWS = {
    "uniform": lambda random, **rest: random.uniform((4, 3), low=-1, high=2, **rest),
    "normal": lambda random, **rest: random.normal((4, 3), mean=1, std=2, **rest),
    "integers": lambda random, **rest: random.integers(1000, shape=(4, 3), **rest),
    "bernoulli": lambda random, **rest: random.bernoulli(0.5, (8, 8), **rest),
    "permutation": lambda random, **rest: random.permutation(20, **rest),
    "rows": lambda random, **rest: random.permutation(
        random._core.as_session().asarray(np.arange(40).reshape(20, 2)), **rest
    ),
}


@pytest.fixture
def random(sim_session):
    sim_session.random.seed(7)
    return sim_session.random


class TestEveryMethod:
    @each_case("draw", DRAWS.values(), ids=DRAWS)
    def test_draws_something_else_at_each_call(self, random, draw):
        first, second = draw(random).numpy(), draw(random).numpy()
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
        assert not np.array_equal(first, second)

    @each_case("draw", DRAWS.values(), ids=DRAWS)
    def test_draws_the_same_again_from_the_same_seed(self, random, draw):
        random.seed(7)
        first = [draw(random) for _ in range(3)]
        random.seed(7)
        again = [draw(random) for _ in range(3)]
        random.seed(8)
        other = draw(random).numpy()
        for one, two in zip(first, again, strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy())
        assert not np.array_equal(first[0].numpy(), other)

    @each_case("draw", DRAWS.values(), ids=DRAWS)
    def test_with_a_seed_of_its_own_depends_on_that_alone(self, random, draw):
        random.seed(7)
        first = draw(random, seed=3).numpy()
        np.testing.assert_array_equal(draw(random, seed=3).numpy(), first)
        assert not np.array_equal(draw(random, seed=4).numpy(), first)
        assert random._core.random_state.next() == (7, 0), "it takes no number of the session's"
        random.seed(3)
        assert not np.array_equal(draw(random).numpy(), first), "it is no call of the session's"

    @each_case("draw", DRAWS.values(), ids=DRAWS)
    def test_draws_the_same_on_every_device(self, random, draw):
        on = {device: draw(random, seed=3, device=device) for device in ("cpu:0", "sim:0")}
        assert {device: tensor.device for device, tensor in on.items()} == {"cpu:0": "cpu:0", "sim:0": "sim:0"}
        np.testing.assert_array_equal(on["cpu:0"].numpy(), on["sim:0"].numpy())

    @each_case("draw", DRAWS.values(), ids=DRAWS)
    def test_returns_at_once_with_shape_and_dtype(self, random, draw):
        assert draw(random)._meta is not None


def test_the_numbers_are_philoxs(random):
    for call in range(3):
        drawn = random.integers(0, 2**64, (3, 2), dtype=U64).numpy()
        expected = np.random.Philox(key=7, counter=call << 128).random_raw(6).reshape(3, 2)
        np.testing.assert_array_equal(drawn, expected)


def test_what_is_not_drawn_changes_nothing(random):
    """A call has its number whether its result is kept or not, and for every shape."""
    random.uniform(1000)
    expected = random.uniform(5).numpy()
    random.seed(7)
    random.bernoulli()
    np.testing.assert_array_equal(random.uniform(5).numpy(), expected)


def test_parameters_have_the_usual_defaults(random):
    assert (random.uniform().shape, random.uniform().dtype) == ((), np.float64)
    assert (random.normal(3).shape, random.normal(3).dtype) == ((3,), np.float64)
    assert (random.integers(3).shape, random.integers(3).dtype) == ((), np.int64)
    assert (random.bernoulli().shape, random.bernoulli().dtype) == ((), np.bool_)
    assert (random.permutation(3).shape, random.permutation(3).dtype) == ((3,), np.int64)
    for dtype in ("float16", "float32", "complex64"):
        assert random.normal(3, dtype=np.dtype(dtype)).dtype == dtype


def test_one_bound_of_integers_is_the_upper_one(random):
    drawn = random.integers(3, shape=500).numpy()
    assert set(drawn.tolist()) == {0, 1, 2}
    assert set(random.integers(-2, 1, 500).numpy().tolist()) == {-2, -1, 0}
    assert set(random.integers(np.int8(-2), np.int8(-1), 5).numpy().tolist()) == {-2}


def test_rows_come_in_the_order_of_the_numbers(random):
    x = random._core.as_session().asarray(np.arange(40).reshape(20, 2), device="sim:1")
    rows = random.permutation(x, seed=5)
    assert rows.device == "sim:1"
    np.testing.assert_array_equal(rows.numpy(), x.numpy()[random.permutation(20, seed=5).numpy()])
    np.testing.assert_array_equal(random.permutation(x.T @ x, seed=1).numpy().sum(), (x.T @ x).numpy().sum())


def test_rows_of_a_tensor_whose_shape_data_decide(random):
    x = random._core.as_session().asarray(np.array([3, 1, 3, 2]))
    (found,) = random._core.as_session().call("unique_values", [x])
    assert sorted(random.permutation(found).tolist()) == [1, 2, 3]


class TestState:
    def test_seeds_are_of_64_bits(self, random):
        for seed in (0, 2**64 - 1, np.uint64(2**64 - 1), np.int8(3)):
            random.seed(seed)
            assert random._core.random_state.next() == (int(seed), 0)
            assert random.uniform(seed=seed).numpy() == random.uniform(seed=int(seed)).numpy()

    @each_case(("seed", "kind"), [(-1, ValueError), (2**64, ValueError), (1.0, TypeError)])
    @each_case("call", [Random.seed, lambda random, seed: random.uniform(seed=seed)])
    def test_other_seeds_are_refused_and_change_nothing(self, random, seed, kind, call):
        random.seed(7)
        with pytest.raises(MetadataError, match="seed: ") as caught:
            call(random, seed)
        assert isinstance(caught.value, kind)
        assert random._core.random_state.next() == (7, 0)

    @each_case("seed", [True, None, "7", [7], np.ones(1, int)])
    def test_a_seed_is_an_int(self, random, seed):
        with pytest.raises(MetadataTypeError, match="expected an int"):
            random.seed(seed)

    def test_without_a_seed_every_session_has_its_own(self):
        states = [RandomState().next() for _ in range(10)]
        assert {call for _, call in states} == {0}
        assert len({seed for seed, _ in states}) == 10

    def test_every_call_of_every_thread_has_a_number_of_its_own(self):
        state = RandomState(1)
        with ThreadPoolExecutor(8) as threads:
            drawn = list(threads.map(lambda _: [state.next() for _ in range(500)], range(8)))
        assert sorted(call for of_thread in drawn for _, call in of_thread) == list(range(4000))

    def test_a_new_seed_never_meets_an_old_number(self):
        """Every seed starts at 0, and none of its calls comes twice, while threads draw and one of them sets seeds."""
        state = RandomState(0)

        def work(thread):
            found = []
            for n in range(200):
                if thread == 0:
                    state.seed(n + 1)
                found += [state.next() for _ in range(5)]
            return found

        with ThreadPoolExecutor(4) as threads:
            drawn = [stream for of_thread in threads.map(work, range(4)) for stream in of_thread]
        assert len(set(drawn)) == len(drawn)
        for seed in {seed for seed, _ in drawn}:
            calls = sorted(call for other, call in drawn if other == seed)
            assert calls == list(range(len(calls)))


@each_case(
    ("call", "kind"),
    [
        (lambda random: random.uniform(3, low=1, high=0), ValueError),
        (lambda random: random.uniform(3, dtype=np.dtype("int8")), TypeError),
        (lambda random: random.uniform((2, -1)), ValueError),
        (lambda random: random.normal(3, std=-1), ValueError),
        (lambda random: random.integers(0), ValueError),
        (lambda random: random.integers(2.5), TypeError),
        (lambda random: random.integers(300, dtype=np.dtype("uint8")), OverflowError),
        (lambda random: random.bernoulli(1.5), ValueError),
        (lambda random: random.permutation(-1), ValueError),
        (lambda random: random.permutation([1, 2]), TypeError),
        (lambda random: random.permutation(random.uniform()), ValueError),
        (lambda random: random.uniform(3, device="cuda:9"), ValueError),
    ],
)
def test_what_makes_no_distribution_raises_at_the_call(random, call, kind):
    with pytest.raises(MetadataError) as caught:
        call(random)
    assert isinstance(caught.value, kind)


def test_signatures_are_numpys_where_it_has_them():
    assert str(inspect.signature(Random.integers)).startswith("(self, low: 'int', high: 'int | None' = None, /, shape")
    assert str(inspect.signature(Random.permutation)).startswith("(self, x: 'int | Tensor', /, *, seed")
    for method in (Random.uniform, Random.normal):
        names = [*inspect.signature(method).parameters]
        assert names[:2] == ["self", "shape"]
        assert names[-3:] == ["dtype", "device", "seed"]
