"""Forms are interned: equal ones are the same object in every thread."""

from __future__ import annotations

import sys
import threading

from tensord.client.global_tensors.form import Form
from tensord.interpreter.layouts.layout import Split
from tensord.interpreter.layouts.placement import placement
from tensord.interpreter.types.meta import Meta


def test_two_threads_that_make_a_new_form_at_once_get_the_same_one() -> None:
    where, layout = placement(["sim:0", "sim:1"]), (Split(0),)
    metas = [Meta.of((size, 13), "float32") for size in range(3_000)]
    made: dict[int, list[Form]] = {0: [], 1: []}
    start = threading.Barrier(2)

    def make(which: int) -> None:
        for n, meta in enumerate(metas):
            if n % 50 == 0:
                start.wait()
            made[which].append(Form.of(meta, where, layout))

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
