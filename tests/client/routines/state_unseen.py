"""State that no run can look at. See `state`."""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import datetime as dt
import inspect
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from .state import item_setter, unseen

KEPT: Any = 1.0


@unseen
def an_iterator() -> Any:
    found = iter([float(n) for n in range(1, 99)])
    return lambda: next(found), lambda _: None


@unseen
def a_generator() -> Any:
    found = (float(n) for n in range(1, 99))
    return lambda: next(found), lambda _: None


@unseen
def a_counter() -> Any:
    import itertools

    found = itertools.count(1)
    return lambda: next(found), lambda _: None


@unseen
def a_clock() -> Any:
    return lambda: time.perf_counter(), lambda _: None


@unseen
def a_date() -> Any:
    return lambda: float(dt.datetime.now().microsecond), lambda _: None  # noqa: DTZ005


@unseen
def random_numbers() -> Any:
    return lambda: random.random(), lambda _: None


@unseen
def random_numbers_of_an_object() -> Any:
    found = random.Random(3)
    return lambda: found.gauss(0, 1), lambda _: None


@unseen
def random_numbers_of_numpy() -> Any:
    return lambda: float(np.random.normal()), lambda _: None  # noqa: NPY002


@unseen
def random_numbers_of_a_generator_of_numpy() -> Any:
    found = np.random.default_rng(3)
    return lambda: float(found.normal()), lambda _: None


@unseen
def random_numbers_without_a_seed() -> Any:
    return lambda: float(np.random.default_rng().normal()), lambda _: None


@unseen
def a_file() -> Any:
    path = Path(__file__)
    return lambda: float(len(path.read_text())), lambda _: None


@unseen
def an_open_file() -> Any:
    import io

    found = io.StringIO("1 2 3 4 5 6 7 8 9 " * 9)
    return lambda: float(found.read(2)), lambda _: None


@unseen
def a_directory() -> Any:
    return lambda: float(len(os.listdir("."))), lambda _: None  # noqa: PTH208


@unseen
def all_globals() -> Any:
    return lambda: globals()["KE" + "PT"], lambda new: globals().__setitem__("KEPT", new)


@unseen
def a_large_array() -> Any:
    found = np.zeros(1 << 22)
    return lambda: float(found[0]), item_setter(found, 0)


@unseen
def the_globals_of_a_function() -> Any:
    return lambda: a_clock.__globals__["KE" + "PT"], lambda new: globals().__setitem__("KEPT", new)


@unseen
def variables_of_callers() -> Any:
    return lambda: float(len(inspect.currentframe().f_back.f_locals)), lambda _: None  # type: ignore[union-attr]


@unseen
def an_array_in_a_file() -> Any:
    path = Path(__file__)
    return lambda: float(np.fromfile(path, np.uint8, 1)[0]), lambda _: None


@unseen
def whether_a_lock_is_taken() -> Any:
    found = threading.Lock()
    return lambda: 1.0 + found.locked(), lambda _: None


@unseen
def the_thread_that_calls() -> Any:
    return lambda: float(len(threading.current_thread().name)), lambda _: None


@unseen
def random_numbers_of_scipy() -> Any:
    from scipy.stats import norm

    return lambda: float(norm.rvs()), lambda _: None


@unseen
def random_numbers_of_sklearn() -> Any:
    from sklearn.utils import resample

    return lambda: float(resample(np.arange(1e6))[0]), lambda _: None


@unseen
def a_thread_that_the_function_starts() -> Any:
    def read() -> Any:
        found: list[float] = []
        thread = threading.Thread(target=lambda: found.append(time.perf_counter()))
        thread.start()
        thread.join()
        return found[0]

    return read, lambda _: None


@unseen
def what_is_done_behind_another_profiler() -> Any:
    def read() -> Any:
        sys.setprofile(None)
        return time.perf_counter()

    return read, lambda _: None
