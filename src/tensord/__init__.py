"""tensord: a tensor runtime for several Python processes on one machine.

    import tensord as td

    with td.connect("local", devices=["cpu:0", "sim:0"]) as s:
        x = s.asarray([[1.0, 2.0], [3.0, 4.0]])
        print((x @ x + 1).to_device("sim:0").numpy())

The names below and in `tensord.array_api`, `collectives`, `devices` and `handlers` are the public surface; everything
else may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from . import array_api as array_api
    from . import collectives as collectives
    from . import devices as devices
    from .client.calls.contexts import Context
    from .client.cluster.session import ClusterSession
    from .client.global_tensors.tensor import GlobalTensor
    from .client.host_arrays.host_arrays import HostPool
    from .client.own_ops.op import Op, op
    from .client.pipelines.pipeline import Pipeline, Stage, pipeline
    from .client.routines.routine import Routine
    from .client.session.session import Session
    from .client.tensor.tensor import Tensor
    from .client.session.connecting import Connecting
    from .interpreter.build_info import build_info
    from .interpreter.errors import (
        CancelledError,
        CaptureError,
        ConnectionLost,
        DeviceMemoryError,
        FileError,
        KernelError,
        MetadataError,
        NodeLost,
        ProtocolError,
        QuotaError,
        TensordError,
    )
    from .interpreter.layouts.layout import broadcast, partial, split
    from .interpreter.layouts.placement import placement
    from .interpreter.programs.program import Program
    from .streams.kinds import define_device
    from .interpreter.types.meta import Meta
    from .vm.tracing.analysis.trace import Trace

    P = ParamSpec("P")
    R = TypeVar("R")

__version__ = "0.1.0"

__all__ = [
    "CancelledError",
    "CaptureError",
    "ClusterSession",
    "ConnectionLost",
    "Context",
    "DeviceMemoryError",
    "FileError",
    "GlobalTensor",
    "HostPool",
    "KernelError",
    "Meta",
    "MetadataError",
    "NodeLost",
    "Op",
    "Pipeline",
    "Program",
    "ProtocolError",
    "QuotaError",
    "Session",
    "Stage",
    "Tensor",
    "TensordError",
    "Trace",
    "broadcast",
    "build_info",
    "connect",
    "connect_async",
    "connect_cluster",
    "connect_cluster_async",
    "define_device",
    "op",
    "partial",
    "pipeline",
    "placement",
    "routine",
    "split",
    "use_opentelemetry",
]

_HOMES = {
    "Program": "interpreter.programs.program",
    "ClusterSession": "client.cluster.session",
    "Context": "client.calls.contexts",
    "GlobalTensor": "client.global_tensors.tensor",
    "HostPool": "client.host_arrays.host_arrays",
    "Meta": "interpreter.types.meta",
    "Op": "client.own_ops.op",
    "Pipeline": "client.pipelines.pipeline",
    "Stage": "client.pipelines.pipeline",
    "Session": "client.session.session",
    "Tensor": "client.tensor.tensor",
    "Trace": "vm.tracing.analysis.trace",
    "broadcast": "interpreter.layouts.layout",
    "define_device": "streams.kinds",
    "build_info": "interpreter.build_info",
    "op": "client.own_ops.op",
    "partial": "interpreter.layouts.layout",
    "pipeline": "client.pipelines.pipeline",
    "placement": "interpreter.layouts.placement",
    "split": "interpreter.layouts.layout",
}
_MODULES = ("array_api", "collectives", "devices", "handlers")
_Given = ParamSpec("_Given")


def connect(
    address: str | None = None,
    *,
    devices: Sequence[str | Mapping[str, object]] | None = None,
    tracing: bool = True,
    strict: bool = False,
    keys: str | PathLike[str] | None = None,
    engine: Literal["vm", "serial"] | None = None,
    frames: int | None = None,
    name: str | None = None,
    routines: Literal["auto"] | None = None,
    detail: int = 0,
    wait: float | None = None,
    node: str | None = None,
    plugins: Sequence[str] | None = None,
) -> Session:
    """Open a session on a virtual machine: a daemon's, or one in this process.

    `session.address` and its `repr` say where the machine is. Where no daemon was found, errors that may come of that
    say so, and an interactive session has one line on stderr.

    `devices`, `tracing`, `engine`, `node` and `plugins` are for machines in this process only; without an address they
    mean one.

    :param address: "ipc:///path" or "tcp://host:port" of a daemon (`tensord serve`); "local" for a machine of its own
        in this process, "local:NAME" to share one within the process. Without an address: $TENSORD_ADDRESS, else the
        daemon that runs here, else "local:default".
    :param devices: Names ("cpu:0", "sim:0", "cuda:0"), or tables of a name and options; the first is the default
        device, and ["cpu:0"] the default list.
    :param tracing: Keep records of instructions.
    :param strict: An op whose operand is not on its device raises instead of moving the operand.
    :param keys: For tcp, the client's key file or its directory (see `tensord keygen`); by default $TENSORD_KEYS.
    :param engine: "vm", or "serial" to execute every op at once, in program order, on NumPy, which shows whether a
        fault is the program's or the scheduler's (docs/serial.md). By default $TENSORD_ENGINE, else "vm".
    :param frames: How many lines of the program errors and traces name for each call; by default $TENSORD_FRAMES, else
        the line of the call, with up to three of its callers if that line is in a library.
    :param name: The session's name in the machine's log and in `tensord sessions`, at most 64 printable characters; by
        default the script's name.
    :param routines: "auto": repeated calls, as those of a training loop, are recognised and sent as one run of a
        program (docs/routines.md).
    :param detail: With n, the trace has the times of each call inside of every nth run of a routine.
    :param wait: Use a daemon, and wait so many seconds for one to listen; no machine in this process takes its place.
    :param node: The machine's name among several, in front of the names of its devices: "node0/cpu:0"
        (docs/cluster.md).
    :param plugins: Installed packages that define ops or kinds of devices, loaded once in a process (docs/plugins.md).
    :returns: The session, a context manager.
    :raises MetadataError: An address, device, engine, name, plugin or option does not exist.
    :raises ConnectionLost: No daemon answers.
    """
    from .client.session.connect import ConnectOptions
    from .client.session.connect import connect as make
    from .client.locations.locations import located
    from .client.locations.tracebacks import MEANT, hide
    from .interpreter.errors import TensordError

    try:
        return make(
            address,
            ConnectOptions(devices, tracing, strict, keys, engine, frames, name, routines, detail, wait, node, plugins),
        )
    except MEANT as error:
        if isinstance(error, TensordError):
            located(error)
        hide(error)
        raise


def connect_cluster(
    address: str | None = None,
    keys: str | PathLike[str] | None = None,
    *,
    strict: bool = False,
    frames: int | None = None,
    name: str | None = None,
) -> ClusterSession:
    """Open a session on all machines of a cluster: one for each node, behind one facade (docs/cluster.md).

    Sessions on the other nodes are opened when they are first used.

    :param address: The address of any of the cluster's daemons, which knows the others; by default the daemon of this
        machine, as for `connect`, but never a machine in this process.
    :param keys: The client's key file or its directory, by default $TENSORD_KEYS; all daemons have to allow the key.
        The public keys of the other daemons come from the daemon that is asked.
    :param strict: As for `connect`.
    :param frames: As for `connect`.
    :param name: As for `connect`.
    :returns: The session, a context manager.
    :raises MetadataError: The daemon is of no cluster, or the address begins with "ray://".
    :raises ConnectionLost: No daemon answers.
    """
    from .client.cluster.connect import connect_cluster as make
    from .client.locations.locations import located
    from .client.locations.tracebacks import MEANT, hide
    from .interpreter.errors import TensordError

    try:
        return make(address, keys, strict=strict, frames=frames, name=name)
    except MEANT as error:
        if isinstance(error, TensordError):
            located(error)
        hide(error)
        raise


def _in_a_loop(make: Callable[_Given, Session]) -> Callable[_Given, Connecting]:
    """`connect`, or `connect_cluster`, as what an event loop awaits: it takes what that takes."""

    def connect_async(*args: _Given.args, **kwargs: _Given.kwargs) -> Connecting:
        """As without `_async`, in an event loop: `async with td.connect_async(...) as session:`, whose end closes the
        session, or `session = await td.connect_async(...)`. A session of which nobody hears, since the task was
        cancelled, is closed."""
        from functools import partial

        from .client.session.connecting import Connecting

        return Connecting(partial(make, *args, **kwargs))

    return connect_async


connect_async, connect_cluster_async = _in_a_loop(connect), _in_a_loop(connect_cluster)


@overload
def routine(
    function: Callable[P, R],
    *,
    eager: bool = False,
    passes: str | Iterable[str] = "all",
    constants: Iterable[str] = (),
) -> Routine[P, R]: ...
@overload
def routine(
    function: None = None,
    *,
    eager: bool = False,
    passes: str | Iterable[str] = "all",
    constants: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Routine[P, R]]: ...
def routine(
    function: Callable[P, R] | None = None,
    *,
    eager: bool = False,
    passes: str | Iterable[str] = "all",
    constants: Iterable[str] = (),
) -> Any:
    """Make a routine of a function: captured at its first call, and run as one program afterwards.

    A decorator: `@tensord.routine`. Its tensors are those of the default session, that of `tensord.array_api`; another
    session has a `routine` of its own. See docs/routines.md.

    :param function: The function; without one, a decorator is returned.
    :param eager: Each call just calls the function.
    :param passes: The names of the passes that may change the program, or "all" or "none".
    :param constants: Objects that stay as they were at the capture, by the names that CaptureError and the report give
        them.
    :returns: The routine, which is called as the function is.
    :raises MetadataTypeError: The function is a generator or a coroutine function.
    """
    from functools import partial

    from .client.routines.routine import Routine
    from .client.locations.tracebacks import MEANT, hide

    if function is None:
        return partial(routine, eager=eager, passes=passes, constants=constants)
    try:
        return Routine(None, function, eager=eager, passes=passes, constants=constants)
    except MEANT as error:
        hide(error)
        raise


def use_opentelemetry(provider: TracerProvider | None = None, *, on: bool = True) -> None:
    """Have the spans of this process's sessions (`session.span`) be spans of OpenTelemetry, too (docs/metrics.md).

    :param provider: Makes the tracer; by default OpenTelemetry's own.
    :param on: False ends it.
    :raises MetadataError: The package is not installed: ``pip install "tensord[otel]"``.
    """
    from .client.locations.locations import located
    from .client.locations.telemetry import use
    from .client.locations.tracebacks import MEANT, hide
    from .interpreter.errors import TensordError

    try:
        use(provider, on=on)
    except MEANT as error:
        if isinstance(error, TensordError):
            located(error)
        hide(error)
        raise


def __getattr__(name: str) -> Any:
    """Load public names when they are first used: the command line does not need NumPy to show its help."""
    import sys
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in __all__:
        from .client.tensor.hints import MODULE, missing

        raise missing("module 'tensord'", name, MODULE, sys.modules[__name__])
    return getattr(import_module(f".{_HOMES.get(name, 'interpreter.errors')}", __name__), name)


def __dir__() -> list[str]:
    """The public names, loaded or not, and nothing that is only imported here."""
    return sorted([*__all__, *_MODULES, "__version__", "__doc__"])
