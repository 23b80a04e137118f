"""Metas are interned: equal ones are the same object, on all threads."""

from __future__ import annotations

import sys
import threading

import numpy as np

from tensord.interpreter.types.meta import Meta


def test_two_threads_that_make_a_new_meta_at_once_get_the_same_one():
    made: dict[int, list[Meta]] = {0: [], 1: []}
    start = threading.Barrier(2)

    def make(which):
        for size in range(3_000):
            if size % 50 == 0:
                start.wait()
            made[which].append(Meta.of((7, size, 11), np.float32))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make, args=(which,)) for which in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(one is other for one, other in zip(made[0], made[1], strict=True))
