"""Blocks whose results are moved near the host change no value, on any machine."""

from __future__ import annotations

import numpy as np


def test_values_are_the_same_inside_and_outside(sim_session):
    s = sim_session
    x = s.asarray(np.arange(12.0).reshape(3, 4), "sim:0")

    def program():
        y = x @ x.T
        z = (y - y.max()).sum(axis=0)
        w = s.call("add", [z, 1.0], device="sim:1")[0]
        return [y, z, w, w.prefetch("host")]

    outside = [each.numpy() for each in program()]
    for _ in range(3):
        with s.host_results() as results:
            inside = program()
            results.leave(inside[0])
        for one, other in zip(s.fetch(inside), outside, strict=True):
            np.testing.assert_array_equal(one, other)
    assert s.sync() == 0
    assert s.stats()["recent_errors"] == []


def test_in_a_loop_that_fetches_the_step_before(sim_session):
    s = sim_session
    x = s.asarray(np.zeros(4), "sim:0")
    before, found = None, []
    with s.host_results():
        for n in range(50):
            x = x + float(n)
            if before is not None:
                found.append(before.numpy()[0])
            before = x
    assert found == [sum(range(n + 1)) for n in range(49)]
    assert s.sync() == 0
