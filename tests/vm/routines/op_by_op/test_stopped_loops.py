"""Loops that are stopped in the middle: their results are poisoned, and iterations not yet begun are skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, KernelError, TensordError
from tensord.interpreter.wire.messages import Restart
from tensord.streams.faults import Fault
from tensord.vm import engine as engine_module
from tensord.vm.reporting.invariants import violations

from ....each_case import each_case
from ...bare_engine import Bare
from ...linked import Linked, scalar, upload
from ...parts import Parts

STEP, INNER = "user.py:2", "user.py:3"  # the lines of a loop, and of one inside

ENDLESS = """\
captured %0 w: float64[1] on d0
%1: float64[1], %2: float64[1] = while_loop %0 into %0            # 2
block
    number $0: float = 1e9
    parameter %0: float64[1] on d0
    %1: bool[1] = less %0, $0 on d0
    %2: bool[] = any %1 on d0
    return %2
block %0
    number $0: float = 1.0
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    effect %0 {callback: 0}
    %2: float64[1] = add %1, $0 into %1 on d0
    %3: float64[1] = add %0, $0 on d0
    return %3
end
return %1"""
BOUNDED = ENDLESS.replace("into %0", "{max_iterations: 3} into %0", 1)

NESTED = """\
number $0 n: int
parameter %0 x: float64[1] on d0
captured %1 w: float64[1] on d0
%2: float64[1], %3: float64[1] = repeat_loop $0, %0 into %1      # 2
block %1, $0
    number $0: int
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    %2: float64[1], %3: float64[1] = repeat_loop $0, %0 into %1  # 3
    block %1
        number $0: float = 1.0
        parameter %0: float64[1] on d0
        captured %1: float64[1] on d0
        effect %0 {callback: 0}
        %2: float64[1] = add %1, $0 into %1 on d0
        %3: float64[1] = add %0, $0 on d0
        return %3
    end
    return %2
end
return %2"""

COUNTED = """\
parameter %0 n: int64[] on d0
parameter %1 x: float64[1] on d0
captured %2 w: float64[1] on d0
%3: float64[1], %4: float64[1] = repeat_loop %0, %1 into %2      # 2
block %2
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    %2: float64[1] = add %1, %0 into %1 on d0
    %3: float64[1] = negative %0 on d0
    return %3
end
return %3"""


class Held(Linked):
    """A linked program whose captured tensor another session holds."""

    def __init__(self, bare: Bare, text: str, **limits: int) -> None:
        super().__init__(bare, text, [[0.0]], **limits)
        self.client.publish("w", ids=self.captured)
        self.other = bare.client()
        self.live = self.other.lookup("w")

    def goes_round(self, times: int) -> None:
        """Drive until the body has begun `times` rounds."""
        device: Any = self.bare.device
        while len(self.seen) < times:
            self.bare.step(next(stream for stream in device.streams if stream.can_execute()))

    def seen_by_others(self) -> TensordError:
        """The error that the other session finds in the place of the value."""
        with pytest.raises(TensordError) as caught:
            self.other.fetch(self.live)
        return caught.value

    def heals(self) -> None:
        """Another session overwrites the poisoned tensor, and reads it."""
        new = upload(self.other, np.array([5.0]))
        self.other.call("add", new, new, out=self.live)
        assert self.other.fetch(self.live) == [10.0]
        assert not violations(self.bare.engine)


def name_of(value: Any) -> str:
    return getattr(value, "__name__", str(value))


def cancel(it: Held) -> None:
    it.bare.engine.cancel(it.client.session)


def close(it: Held) -> None:
    it.bare.engine.close(it.client.session)


def cancel_and_close(it: Held) -> None:
    cancel(it)
    close(it)


@each_case(("end", "why"), [(cancel, "cancelled"), (close, "closed"), (cancel_and_close, "closed")], ids=name_of)
def test_a_loop_that_is_stopped_poisons_what_it_writes_for_those_who_hold_it(
    end: Callable[[Held], None], why: str
) -> None:
    it = Held(Bare(inline=False), ENDLESS)
    it.run()
    it.goes_round(3)
    end(it)
    it.bare.drain()
    error = it.seen_by_others()
    assert (type(error), error.op, error.location) == (CancelledError, "while_loop", STEP)
    assert f"the session was {why} in the middle of a while_loop; rounds begun: 3" in str(error)
    it.heals()


def test_a_session_that_was_stopped_in_a_loop_goes_on_after_a_restart() -> None:
    it = Held(Bare(inline=False), ENDLESS)
    (result,) = it.run()
    it.goes_round(2)
    cancel(it)
    it.client.send(Restart(it.client.session.generation))
    assert str(it.error(result)) == str(it.error(it.captured[0]))
    new = upload(it.client, np.array([1.0]))
    it.client.call("add", new, new, out=it.captured[0])
    assert it.other.fetch(it.live) == [2.0]
    it.client.release(new)
    it.is_left(result)


def test_a_loop_that_reaches_its_bound_poisons_what_others_hold() -> None:
    it = Held(Bare(), BOUNDED)
    it.run()
    error = it.seen_by_others()
    assert (type(error), error.location) == (KernelError, STEP)
    assert "max_iterations=3" in str(error)
    it.heals()


def test_a_loop_that_reaches_the_bound_of_its_session_poisons_what_others_hold() -> None:
    it = Held(Bare(), ENDLESS, iterations=4)
    it.run()
    error = it.seen_by_others()
    assert (type(error), error.location) == (KernelError, STEP)
    assert "quota iterations" in str(error)


@pytest.mark.parametrize("end", [cancel, close], ids=name_of)
def test_a_loop_inside_another_poisons_what_both_write(
    end: Callable[[Held], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LIVE", 40)
    it = Held(Bare(inline=False), NESTED)
    it.run(np.array([0.0]), n=(20,))
    it.goes_round(6)
    assert it.client.session.in_run()
    end(it)
    it.bare.drain()
    error = it.seen_by_others()
    assert type(error) is CancelledError
    assert error.location in (STEP, INNER)


@pytest.mark.parametrize("end", [cancel, close], ids=name_of)
def test_a_loop_that_has_not_begun_leaves_what_others_hold(end: Callable[[Held], None]) -> None:
    """The loop waits for its count: its write counts as never sent."""
    it = Held(Bare(inline=False), COUNTED)
    n = upload(it.client, scalar(3))
    count = it.client.call("abs", n, meta=((), "int64"))
    it.run(count, np.array([1.0]))
    assert it.client.session.waits()
    end(it)
    assert it.other.fetch(it.live) == [0.0]


@pytest.mark.parametrize("end", [cancel, close], ids=name_of)
def test_a_loop_that_waits_for_its_first_test_leaves_what_others_hold(end: Callable[[Held], None]) -> None:
    it = Held(Bare(inline=False), ENDLESS)
    it.run()
    assert it.client.session.waits()
    assert not it.seen
    end(it)
    assert it.other.fetch(it.live) == [0.0]


@pytest.mark.parametrize("end", [cancel, close], ids=name_of)
def test_a_loop_that_was_admitted_to_its_end_is_carried_out(end: Callable[[Held], None]) -> None:
    """No condition is open any more, so its writes are those of ops which others need."""
    it = Held(Bare(inline=False), COUNTED)
    it.run(upload(it.client, scalar(3)), np.array([1.0]))
    while it.client.session.in_run():
        it.bare.step(it.bare.device.streams[0])
    assert it.client.session.live
    end(it)
    assert it.other.fetch(it.live) == [1.0]


MOVING = """\
parameter %0 x: float64[1] on d1
captured %1 w: float64[1] on d0
%2: float64[1], %3: float64[1] = while_loop %0 into %1           # 2
block
    number $0: float = 1e9
    parameter %0: float64[1] on d1
    %1: bool[1] = less %0, $0 on d1
    %2: bool[] = any %1 on d1
    return %2
block %1
    number $0: float = 1.0
    parameter %0: float64[1] on d1
    captured %1: float64[1] on d0
    %2: float64[1] = add %1, $0 into %1 on d0
    %3: float64[1] = add %0, $0 on d1
    return %3
end
return %2"""


def test_a_loop_whose_device_is_lost_poisons_what_others_hold_elsewhere() -> None:
    parts: Any = Parts("cpu:0", "sim:0")
    it = Held(parts, MOVING)
    parts.backends["sim:0"].inject(Fault.of({"kind": "lost", "nth": 12}))
    it.run(np.array([1.0]))
    parts.drain()
    assert "lost" in str(it.seen_by_others())
    it.heals()
