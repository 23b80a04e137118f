"""Executes the steps of a random program on the oracle."""

from __future__ import annotations

from typing import Any

from tensord.vm.serial.values import SerialSession, define

from .interpreted import Interpreter
from .oracle import Oracle
from .steps import INNER, RENAMED, Encoder, Step


def execute(oracle: Oracle, sessions: Any, encoder: Encoder, step: Step, *, unfolds: bool = False) -> None:
    """Execute one step on the oracle: a run as the steps that it stands for, or, with `unfolds`, as the oracle does."""
    session = sessions[step.session]
    if step.kind in {"cancel", "close"}:
        getattr(oracle, step.kind)(session)
    elif step.kind == "RUN" and not unfolds:
        for inner in step.fields[INNER]:
            execute(oracle, sessions, encoder, inner)
        rename(session, step.fields[RENAMED])
    elif step.kind == "FLOW" and not unfolds:
        Interpreter(oracle, session, encoder, step).run()
    elif step.kind == "ATOMIC":
        for inner in step.fields:
            execute(oracle, sessions, encoder, inner, unfolds=unfolds)
    elif step.kind != "await":
        oracle.receive(session, encoder.messages(step))


def rename(session: SerialSession, renamed: tuple[tuple[int, int], ...]) -> None:
    """Give the results of a run their ids."""
    for id_, output in renamed:
        define(session, output, session.tensors.pop(id_))
