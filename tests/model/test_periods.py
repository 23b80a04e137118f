"""Random programs through sessions that find periods: runs are issued call by call, so that calls repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensord.client.periods import history
from tensord.client.tensor.tensor import Tensor

from .clients import Clients
from .ops import failing_ops
from .programs import prepared
from .steps import Step

REHEARSALS = 6  # of the calls of a run, before they are issued in earnest


class OneByOne(Clients):
    """Issues the steps of a run one by one. `sent`: the number of calls that left in runs all the same."""

    sent = 0

    def run_(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        routine, _, inner, _, _, renamed, released = step.fields
        if routine.obtained:  # its captured tensors have no handles
            super().run_(session, handles, step)
            return
        for _ in range(REHEARSALS):
            self.rehearse(session, dict(handles), inner)
            session.flush()
        for one in inner:
            self.do(session, handles, one)
        handles.update({output: handles.pop(id_) for id_, output in renamed})
        for id_ in released:
            handles.pop(id_, None)
        self.sent = max(self.sent, session._core.outbox.ops_in_runs)

    def rehearse(self, session: Any, handles: dict[int, Tensor], steps: Sequence[Step]) -> None:
        """Issue the calls among the steps that write no tensor, as far as they have operands."""
        for step in steps:
            if step.kind == "CALL" and step.fields[4] is None:
                op, attributes, metas, device, _, inputs, outputs, _ = step.fields
                if all(isinstance(meta, type) or id_ in handles for id_, meta in zip(inputs, metas, strict=True)):
                    operands = [x if isinstance(m, type) else handles[x] for x, m in zip(inputs, metas, strict=True)]
                    made = session.call(op, operands, dict(attributes), device=device)
                    handles.update(zip(outputs, made, strict=True))

    def release(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        for id_ in step.fields[0]:
            handles.pop(id_, None)  # an input of the run may be released inside, and once more behind it


def test_programs_give_what_serial_execution_gives(
    make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs pay from two calls on, so programs that repeat little have many."""
    monkeypatch.setattr(history, "MIN_RUN", 2)
    monkeypatch.setattr(history, "SHORT_ROUND", 1)
    sent = 0
    for seed in (7, 8, 17, 20, 26):  # some without repetitions, and some with many
        with failing_ops(), np.errstate(all="ignore"):
            program, expected = prepared(seed, honest=True)
            clients = OneByOne(program, f"local:periods-{seed}", partial(make_session, routines="auto"), expected)
            wrong = clients.run(program)
        assert not wrong, f"seed {seed}: {wrong[:3]}"
        sent += clients.sent
    assert sent > 100
