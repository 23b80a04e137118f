"""Linked programs with control flow, on every kind of machine: side effects in blocks, waits, early ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tensord as td
from tensord.client.linking.linked import Bindings, ProgramBinding
from tensord.client.session.session import Session

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)
with_streams = pytest.mark.parametrize("machines", ["here", "daemon"], indirect=True)

LOOP = td.Program.parse("""\
tensord program 1
number $0 n: int
parameter %0 x: float64[1] on d0
print "before"
%1: float64[1] = repeat_loop $0, %0                             # model.py:1
block
    number $0: float = 1.0
    parameter %0: float64[1] on d0
    %1: float64[1] = add %0, $0 on d0                           # model.py:2
    print "at", %1                                              # model.py:3
    effect %1 {callback: 0}                                     # model.py:4
    return %1
end
print "after", %1
return %1""")

UNTIL = """\
tensord program 1
number $0 most: float
parameter %0 x: float64[1] on d0
%1: float64[1] = while_loop %0                                  # model.py:1
block $0
    number $0: float
    parameter %0: float64[1] on d0
    %1: bool[1] = less %0, $0 on d0
    %2: bool[] = any %1 on d0
    return %2
block
    number $0: float = 1.0
    parameter %0: float64[1] on d0
    %1: float64[1] = add %0, $0 on d0
    return %1
end
return %1"""


def loop(session: Session, callback: Callable[..., None]) -> ProgramBinding:
    return ProgramBinding(session._core, LOOP, Bindings(session.devices[:1], (), (), [callback]))


@anywhere
def test_side_effects_of_rounds_come_in_their_order(
    make_session: Callable[..., Session], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []
    with make_session() as session:
        f = loop(session, lambda array: seen.append(float(array[0])))
        results = [f.run([session.asarray([10.0 * n])], [n])[0] for n in range(4)]
        session.print("behind")
        assert [result.tolist() for result in results] == [[11.0 * n] for n in range(4)]
    assert seen == [11.0, 21.0, 22.0, 31.0, 32.0, 33.0]
    lines: list[str] = []
    for n in range(4):
        lines += ["before", *(f"at [{10 * n + k + 1}.]" for k in range(n)), f"after [{11 * n}.]"]
    assert capsys.readouterr().out.splitlines() == [*lines, "behind"]


@anywhere
def test_a_callback_that_raises_in_a_round_stops_the_chain_and_not_the_loop(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []

    def note(array: Any) -> None:
        seen.append(float(array[0]))
        if seen[-1] >= 3:
            raise ValueError("no more")

    (result,) = loop(session, note).run([session.asarray([0.0])], [100])
    with pytest.raises(td.KernelError, match="no more") as caught:
        session.check_chain()
    assert caught.value.location == "model.py:4"
    assert result.tolist() == [100.0]
    assert seen == [1.0, 2.0, 3.0]
    assert capsys.readouterr().out.splitlines() == ["before", "at [1.]", "at [2.]", "at [3.]"]


@with_streams
def test_messages_behind_a_run_that_waits_come_behind_it(make_session: Callable[..., Session]) -> None:
    """The condition of the loop waits for a kernel that is too large to run inline."""
    session = make_session()
    large = "%2: float64[4000000] = zeros {shape: [4000000]} on d0\n%3: float64[] = sum %2 on d0\n"
    text = UNTIL.replace("    return %1\nend", f"{large}%4: float64[1] = add %1, %3 on d0\nreturn %4\nend")
    f = session.link(td.Program.parse(text))
    x = session.asarray([0.0])
    (first,) = f(x, most=5.0)
    x += 7.5
    (second,) = f(x, most=10.0)
    assert (second.tolist(), first.tolist(), x.tolist()) == ([10.5], [5.0], [7.5])


@with_streams
def test_a_loop_without_end_ends_with_cancel(make_session: Callable[..., Session]) -> None:
    session = make_session()
    f = session.link(td.Program.parse(UNTIL))
    (endless,) = f(session.asarray([0.0]), most=1e300)
    session.cancel()
    with pytest.raises(td.CancelledError):
        endless.numpy()
    session.restart()
    assert f(session.asarray([0.0]), most=3.0)[0].tolist() == [3.0]


@with_streams
def test_a_loop_without_end_ends_with_its_session(make_session: Callable[..., Session]) -> None:
    session = make_session()
    f = session.link(td.Program.parse(UNTIL))
    f(session.asarray([0.0]), most=1e300)
    session.close()
    other = make_session()
    assert other.asarray([1.0]).tolist() == [1.0]
