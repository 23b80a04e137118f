"""Callbacks at the end of the process run once, the last one first."""

from __future__ import annotations

import atexit

from tensord.interpreter.concurrency.process_end import ProcessEnd


def test_the_last_action_is_the_first_and_each_is_done_once() -> None:
    end, done = ProcessEnd(), []
    atexit.unregister(end.run)
    actions = [lambda n=n: done.append(n) for n in range(3)]
    for action in (*actions, actions[0]):
        end.register(action)
    end.run()
    assert done == [0, 2, 1]
    end.run()
    assert len(done) == 3


def test_an_action_may_ask_for_another() -> None:
    end, done = ProcessEnd(), []
    atexit.unregister(end.run)
    end.register(lambda: end.register(lambda: done.append("later")))
    end.run()
    assert done == ["later"]
