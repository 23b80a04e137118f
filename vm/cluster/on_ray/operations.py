"""Operations on a cluster: bring it up, add and remove nodes, restart daemons, rotate keys.

Each operation reports its progress by `on_progress(node, what)`. It ends when all nodes are in the wanted state, or
raises a ClusterError that names the other nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import ray

from ....interpreter.version import version
from ..credentials import ClusterCredentials
from ..errors import ClusterError
from ..lifecycle import DaemonEvent, DaemonProcessState
from ..specification import Specification, gpus_of
from ..supervisor import Ask
from . import placing
from .actor import SupervisorActor
from .cluster import answers, ask, failure_reason, rows_of, running_supervisors, supervisors, supervisors_named
from .placing import Bundle

OnProgress: TypeAlias = Callable[[str, str], None]

POLL_INTERVAL: Final = 0.1
WATCH_INTERVAL: Final = 1.0
MAX_FAILURES: Final = (
    2  # this many failed starts mean that a node does not start; one may fail because a port was just taken
)
END_MARGIN: Final = 15.0  # seconds in addition to the grace period


def up(
    wanted: Specification,
    credentials: ClusterCredentials,
    query: Ask,
    *,
    nodes: int | None,
    cpus: float,
    wait: float,
    timeout: float,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Bring up a cluster. `nodes`: how many, None: one on each node of Ray. Returns their rows by name."""
    existing = supervisors()
    if existing:
        raise ClusterError(
            f"the cluster {wanted.cluster!r} is already up, with {', '.join(existing)}: `tensord cluster add` adds "
            "nodes, `tensord cluster down` ends it"
        )
    placing.remove_groups(wanted.cluster)  # which an `up` that was killed may have left
    count = nodes or sum(node["Alive"] for node in ray.nodes())
    return add(wanted, credentials, query, nodes=count, cpus=cpus, wait=wait, timeout=timeout, on_progress=on_progress)


def add(
    wanted: Specification,
    credentials: ClusterCredentials,
    query: Ask,
    *,
    nodes: int,
    cpus: float,
    wait: float,
    timeout: float,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Add nodes, each with a supervisor. Returns their rows by name, once their daemons serve.

    If one does not come up, or the caller is interrupted, all added nodes are removed again.
    """
    existing = supervisors()
    rows = list(filter(_is_row, rows_of(existing).values()))
    bundles = _bundles(wanted, nodes, cpus, wait, rows if len(rows) == len(existing) else None)
    last_incarnations = {entry["node"]: entry["incarnation"] for row in rows for entry in row["members"]}
    names = placing.free_names(nodes, existing)
    added: dict[str, Any] = {}
    try:
        for name, bundle in zip(names, bundles, strict=True):
            added[name] = _start(name, bundle, wanted, credentials, query, cpus, last_incarnations.get(name, 0))
            on_progress(name, "placed")
        rows_by_name = _await_up(added, timeout, on_progress)
        _introduce({**existing, **added})
    except BaseException:
        _remove(added, wanted.cluster)
        raise
    return {name: rows_by_name[name] for name in names}


def _bundles(
    wanted: Specification, count: int, cpus: float, wait: float, rows: Sequence[Mapping[str, Any]] | None
) -> list[Bundle]:
    """Bundles for `count` nodes: free ones, and a new group for the rest.

    `rows`: of the existing nodes; None if it is not known in which bundles all of them are.
    """
    used = [Bundle(row["group"], row["bundle"]) for row in rows or ()]
    free = [] if rows is None else placing.unused(wanted.cluster, used)[:count]
    rest = count - len(free)
    if not rest:
        return free
    bundle, taken = placing.bundle_of(cpus, gpus_of(wanted.devices)), [row["ray_node"] for row in rows or ()]
    if not wait:
        placing.check_nodes(rest, bundle, ray.nodes(), taken)
    group = placing.place(wanted.cluster, rest, bundle, taken, wait or 5.0)
    return free + [Bundle(group, index) for index in range(rest)]


def _is_row(answer: Any) -> bool:
    return not isinstance(answer, BaseException)


def _start(
    node: str,
    bundle: Bundle,
    wanted: Specification,
    credentials: ClusterCredentials,
    query: Ask,
    cpus: float,
    after: int,
) -> Any:
    """Start a supervisor in a bundle. Ray restarts it whenever it ends."""
    options = {
        "name": node,
        "lifetime": "detached",
        "max_restarts": -1,
        "num_cpus": cpus,
        "num_gpus": gpus_of(wanted.devices),
        "scheduling_strategy": placing.strategy(bundle),
    }
    actor_class = ray.remote(**options)(SupervisorActor)
    placed = (bundle.group, bundle.number)
    return actor_class.remote(node, wanted.to_plain(), credentials.to_plain(), *placed, after, query)


def _await_up(made: Mapping[str, Any], timeout: float, on_progress: OnProgress) -> dict[str, Any]:
    """Wait until every daemon serves. Returns their rows. ClusterError for the first node that does not come up."""
    deadline = time.monotonic() + timeout
    rows: dict[str, Any] = {}
    pending = {node: handle.row.remote() for node, handle in made.items()}
    while len(rows) < len(made):
        ready, _ = ray.wait(list(pending.values()), num_returns=len(pending), timeout=POLL_INTERVAL)
        for node, reference in list(pending.items()):
            if reference in ready:
                row = _row_of(node, reference)
                on_progress(node, row["state"])
                if row["up"]:
                    rows[node] = row
                    del pending[node]
                else:
                    pending[node] = made[node].row.remote()
        if pending and time.monotonic() > deadline:
            raise ClusterError(
                f"not up after {timeout:g} s: {', '.join(pending)}; `ray status` and `ray logs` say more, and "
                "--timeout waits longer"
            )
        if ready and pending:
            time.sleep(POLL_INTERVAL)
    return rows


def _row_of(node: str, reference: Any) -> dict[str, Any]:
    """The row of a node that is starting. ClusterError if it will not come up."""
    (row,) = answers({node: reference}).values()
    if isinstance(row, BaseException):
        raise ClusterError(f"{node}: {failure_reason(row)}")
    if row["version"] != version():
        raise ClusterError(
            f"{node} ({row['host']}) has tensord {row['version']}, and this is {version()}: install the same version "
            "on all nodes"
        )
    if row["failures"] >= MAX_FAILURES or (row["wrong"] and row["state"] == DaemonProcessState.NEW):
        gpus = f", GPUs {row['gpus']}" if row["gpus"] else ""
        raise ClusterError(f"{node} ({row['host']}{gpus}) does not start: {row['wrong']}")
    typed_row: dict[str, Any] = row
    return typed_row


def _introduce(handles: Mapping[str, Any]) -> None:
    """Let every supervisor look for the others."""
    answers({node: handle.met.remote() for node, handle in handles.items()})


def _remove(made: Mapping[str, Any], namespace: str) -> None:
    """Kill supervisors, and with them their daemons; give back the placement groups that no other supervisor needs."""
    for handle in made.values():
        ray.kill(handle, no_restart=True)
    remaining = {node: handle for node, handle in supervisors().items() if node not in made}
    rows = rows_of(remaining)
    if all(map(_is_row, rows.values())):
        placing.remove_groups(namespace, [Bundle(row["group"], row["bundle"]) for row in rows.values()])


# -- taking nodes away -------------------------------------------------------------------------------------------------


def down(namespace: str, nodes: Sequence[str], on_progress: OnProgress) -> list[str]:
    """End these nodes, or all; each daemon has its grace period. Returns their names."""
    leaving = supervisors_named(namespace, nodes)
    rows = rows_of(leaving)
    errors = {node: failure_reason(row) for node, row in rows.items() if not _is_row(row)}
    errors |= _wish({node: handle for node, handle in leaving.items() if node not in errors}, DaemonEvent.STOP)
    for node, error in errors.items():
        on_progress(node, f"killed: {error}" if error else "stopping")
    _leave(leaving, [node for node, error in errors.items() if not error], namespace, END_MARGIN, on_progress)
    return list(leaving)


def drain(namespace: str, nodes: Sequence[str], seconds: float, on_progress: OnProgress) -> list[str]:
    """Let nodes refuse new sessions; end each node when its sessions have ended, or after `seconds`.

    Returns their names.
    """
    leaving = supervisors_named(namespace, nodes)
    for node, error in _wish(leaving, DaemonEvent.DRAIN, seconds).items():
        if error:
            raise ClusterError(error)
        on_progress(node, "draining")
    _leave(leaving, list(leaving), namespace, seconds + END_MARGIN, on_progress)
    return list(leaving)


def _wish(handles: Mapping[str, Any], event: DaemonEvent, seconds: float | None = None) -> dict[str, str]:
    """Send the same request to several supervisors. Returns for each node why that failed; "" if it did not."""
    answered = answers({node: one.wish.remote(str(event), seconds) for node, one in handles.items()})
    return {node: failure_reason(one) if isinstance(one, BaseException) else "" for node, one in answered.items()}


def _leave(
    leaving: Mapping[str, Any], ending: Sequence[str], namespace: str, seconds: float, on_progress: OnProgress
) -> None:
    """Wait until the daemons of the `ending` nodes have ended, tell the nodes that stay, and remove the supervisors."""
    orderly = {node: leaving[node] for node in ending}
    grace = _grace(orderly)
    ended = answers(
        {node: handle.stopped.remote(seconds + grace) for node, handle in orderly.items()}, seconds + grace + 5
    )
    last_entries = answers({node: handle.follow.remote(-1) for node, handle in orderly.items() if ended[node] is True})
    staying = {node: handle for node, handle in supervisors().items() if node not in leaving}
    for answer in last_entries.values():
        if _is_row(answer):
            answers({node: handle.hear.remote(answer[1]) for node, handle in staying.items()})
    _remove(leaving, namespace)
    _introduce(staying)
    for node in leaving:
        on_progress(node, "stopped")


def _grace(handles: Mapping[str, Any]) -> float:
    """The longest grace period of these nodes."""
    specifications = answers({node: one.specification.remote() for node, one in handles.items()})
    return max((one[0]["grace"] for one in specifications.values() if _is_row(one)), default=0.0)


def end(namespace: str) -> None:
    """End the cluster, if it is up."""
    if supervisors():
        down(namespace, (), lambda _node, _what: None)


def await_end() -> None:
    """Wait until the cluster is down, or until the operator interrupts."""
    with suppress(KeyboardInterrupt):
        while supervisors():
            time.sleep(WATCH_INTERVAL)


# -- restarts ----------------------------------------------------------------------------------------------------------


def restart(
    namespace: str, nodes: Sequence[str], timeout: float, on_progress: OnProgress, *, rotate: bool = False
) -> dict[str, Any]:
    """Restart these daemons, or all, one by one; with new pairs of keys if `rotate`.

    ClusterError for the first that does not come back; the daemons after it are not restarted.
    """
    rows = {}
    for node, handle in supervisors_named(namespace, nodes).items():
        before = ask(handle, "row")["incarnation"]
        on_progress(node, "restarting")
        if rotate:
            ask(handle, "rotate")
        else:
            ask(handle, "wish", str(DaemonEvent.RESTART))
        rows[node] = _await_back(node, handle, before, timeout)
        on_progress(node, f"serving, incarnation {rows[node]['incarnation']}")
    return rows


def _await_back(node: str, handle: Any, before: int, timeout: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        row: dict[str, Any] = ask(handle, "row")
        if row["up"] and row["incarnation"] > before:
            return row
        if row["failures"] >= MAX_FAILURES or (row["wrong"] and row["state"] == DaemonProcessState.NEW):
            break
        time.sleep(POLL_INTERVAL)
    raise ClusterError(
        f"{node} has not come back within {timeout:g} s: {row['wrong'] or row['state']}; the nodes after it were not "
        "restarted"
    )


def admit(namespace: str, change: Callable[[ClusterCredentials], ClusterCredentials]) -> ClusterCredentials:
    """Change the credentials on all nodes. ClusterError that names the nodes which could not be changed."""
    handles = running_supervisors(namespace)
    specifications = answers({node: one.specification.remote() for node, one in handles.items()})
    versions = [ClusterCredentials.from_plain(one[1]) for one in specifications.values() if _is_row(one)]
    if not versions:
        raise ClusterError("no supervisor answers: tensord cluster status")
    changed = change(max(versions, key=lambda one: one.version))
    admitted = answers({node: one.admit.remote(changed.to_plain()) for node, one in handles.items()})
    missing = [node for node, answer in admitted.items() if not _is_row(answer)]
    if missing:
        raise ClusterError(f"{', '.join(missing)} did not answer, and may use the old keys until it answers again")
    return changed


def specification(namespace: str) -> tuple[Specification, ClusterCredentials]:
    """The settings that the nodes of a cluster share, and its credentials."""
    for answer in answers(
        {node: one.specification.remote() for node, one in running_supervisors(namespace).items()}
    ).values():
        if _is_row(answer):
            return Specification.from_plain(answer[0]), ClusterCredentials.from_plain(answer[1])
    raise ClusterError("no supervisor answers: tensord cluster status")


def status(namespace: str) -> list[dict[str, Any]]:
    """A row for each node.

    If a supervisor does not answer, its node counts as lost, and the row is the last one known to other supervisors.
    """
    handles = running_supervisors(namespace)
    rows = rows_of(handles)
    remembered = {entry["node"]: entry for row in rows.values() if _is_row(row) for entry in row["members"]}
    return [
        row
        if _is_row(row)
        else {**remembered.get(node, {}), "node": node, "state": "lost", "wrong": failure_reason(row)}
        for node, row in rows.items()
    ]
