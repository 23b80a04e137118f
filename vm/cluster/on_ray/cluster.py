"""Finds, lists and asks the supervisors of a cluster, from an operator's process. Ray's errors become
`ClusterError`s."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

from ....interpreter.errors import TensordError
from ..errors import ClusterError
from ..members import LOST
from ..specification import index_of
from ..tokens import START_ADVICE, asks_for_token, check_token

ANSWER_TIMEOUT: Final = 5.0  # seconds for a supervisor to answer
LOST_NODE_TIMEOUT: Final = 0.5  # seconds for a supervisor that others consider lost
QUIET_OPTIONS: Final = {
    "log_to_driver": False,
    "logging_level": "CRITICAL",
    "configure_logging": False,
    "include_dashboard": False,
}

Found = TypeVar("Found")


@contextmanager
def connected(address: str, namespace: str) -> Iterator[None]:
    """Connect to a running Ray cluster for a `with` block. ClusterError, which says why, if that is impossible."""
    if ray.is_initialized():
        yield
        return
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        ray.init(address=address, namespace=namespace, **QUIET_OPTIONS)
    except ConnectionError as error:
        raise ClusterError(f"no Ray cluster is running at {address} ({first_line(error)}): {START_ADVICE}") from None
    except RuntimeError as error:
        if "ersion mismatch" in str(error):
            raise ClusterError(f"{first_line(error, 3)}: install the same versions on all nodes") from None
        raise ClusterError(f"Ray at {address} does not accept a connection: {first_line(error)}") from None
    except (RayError, ValueError, OSError) as error:
        raise ClusterError(f"Ray at {address} does not accept a connection: {first_line(error)}") from None
    silence_events()
    try:
        check_token(ray.nodes(), asks=asks_for_token(ray.get_runtime_context().gcs_address, os.environ))
        yield
    finally:
        ray.shutdown()


def silence_events() -> None:
    """Keep Ray from printing events of the cluster among a command's output."""
    with suppress(ImportError):  # an internal of Ray; without it there is only more output
        from ray._private import worker

        worker._worker_logs_enabled = False  # noqa: SLF001 - despite `log_to_driver`, the ends of raylets would be printed


def first_line(error: BaseException, lines: int = 1) -> str:
    """The beginning of an error's message, on one line."""
    texts = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(texts[:lines])[:300] or type(error).__name__


# -- supervisors -------------------------------------------------------------------------------------------------------


def supervisors() -> dict[str, Any]:
    """The actors by node name, in order. Empty if there is no cluster with that name."""
    names = sorted(ray.util.list_named_actors(), key=index_of)
    actors = {}
    for name in names:
        try:
            actors[name] = ray.get_actor(name)
        except ValueError:  # the actor has ended in the meantime
            continue
    return actors


def running_supervisors(namespace: str) -> dict[str, Any]:
    """The supervisors of a cluster that is up. ClusterError if no cluster is up."""
    found = supervisors()
    if not found:
        raise ClusterError(f"no cluster {namespace!r} is up on this Ray cluster: tensord cluster up")
    return found


def supervisors_named(namespace: str, nodes: Sequence[str]) -> dict[str, Any]:
    """The supervisors of these nodes, or all if none are named. ClusterError if a node does not exist."""
    running = running_supervisors(namespace)
    for node in nodes:
        if node not in running:
            raise ClusterError(f"unknown node {node!r}; nodes: {', '.join(running)}")
    return {node: running[node] for node in nodes} if nodes else running


def answers(calls: Mapping[str, Any], seconds: float = ANSWER_TIMEOUT, lost: Container[str] = ()) -> dict[str, Any]:
    """The answer of each supervisor, by node, or its error if it does not answer. Supervisors in `lost` have only
    `LOST_NODE_TIMEOUT` seconds."""
    sure = [call for node, call in calls.items() if node not in lost]
    _await(sure, len(sure), seconds)
    if len(sure) < len(calls):
        _await(list(calls.values()), len(calls), LOST_NODE_TIMEOUT)
    return {node: _answer(call) for node, call in calls.items()}


def rows_of(handles: Mapping[str, Any]) -> dict[str, Any]:
    """The row of each supervisor, or its error.

    If the first one that answers considers others lost, they are hardly waited for.
    """
    references = {node: one.row.remote() for node, one in handles.items()}
    first = _await(list(references.values()), 1, ANSWER_TIMEOUT)
    row = _answer(first[0]) if first else {}
    members = row["members"] if isinstance(row, Mapping) and row else ()
    return answers(references, lost={one["node"] for one in members if one["state"] == LOST})


def _await(references: Sequence[Any], count: int, seconds: float) -> list[Any]:
    """Wait until `count` of the answers are ready, or until the time has passed. Returns those that are ready."""
    ready: list[Any] = ray.wait(references, num_returns=count, timeout=seconds)[0] if references else []
    return ready


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=0.001)
    except (RayError, TensordError, OSError, TimeoutError) as error:
        return error


def failure_reason(error: BaseException) -> str:
    """Why a supervisor has not answered, in short."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, TensordError):
        return cause.message
    if isinstance(error, GetTimeoutError):
        return "its supervisor does not answer"
    if isinstance(error, ActorUnavailableError):
        return "its supervisor is being restarted, or waits for a node of Ray"
    if isinstance(error, ActorDiedError):
        return f"its supervisor could not be started: {short_report(error)}"
    return first_line(cause if isinstance(cause, BaseException) else error)


def short_report(error: BaseException) -> str:
    """The last line of a long report by Ray, which names the exception, and a hint if the cause is known."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    if any("ModuleNotFoundError" in line and "tensord" in line for line in lines):
        return f"tensord is not installed there ({last})"
    return last[:300]


def ask(handle: Any, method: str, *arguments: Any, seconds: float = ANSWER_TIMEOUT) -> Any:
    """The answer of one supervisor. ClusterError if it does not answer."""
    try:
        return ray.get(getattr(handle, method).remote(*arguments), timeout=seconds)
    except RayError as error:
        raise ClusterError(failure_reason(error)) from None
