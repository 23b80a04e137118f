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
    "Routine",
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
    "Routine": "client.routines.routine",
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

    `session.address` and the session's `repr` name the machine. If no daemon was found, errors that this may have
    caused mention it, and an interactive Python prints one line on stderr.

    `devices`, `tracing`, `engine`, `node` and `plugins` are for machines in this process only; without an address they
    select such a machine.

    :param address: "ipc:///path" or "tcp://host:port" of a daemon (`tensord serve`); "local" for a new machine in this
        process, "local:NAME" for one that sessions of the process share. Without an address: $TENSORD_ADDRESS, else the
        daemon that runs here, else "local:default".
    :param devices: Names ("cpu:0", "sim:0", "cuda:0"), or tables of a name and options; the first is the default
        device, and ["cpu:0"] the default list.
    :param tracing: Keep records of instructions.
    :param strict: Raise an error, instead of moving the operand, if an op's operand is not on the op's device.
    :param keys: For tcp, the client's key file or its directory (see `tensord keygen`); by default $TENSORD_KEYS.
    :param engine: "vm", or "serial" to execute every op at once, in program order, with NumPy, which shows whether the
        program or the scheduler causes a fault (docs/serial.md). By default $TENSORD_ENGINE, else "vm".
    :param frames: The number of lines of the program that errors and traces name for each call; by default
        $TENSORD_FRAMES, else the line of the call, with up to three of its callers if that line is in a library.
    :param name: The session's name in the machine's log and in `tensord sessions`, at most 64 printable characters; by
        default the script's name.
    :param routines: "auto": recognise repeated calls, such as those of a training loop, and send them as one run of a
        program (docs/routines.md).
    :param detail: With n, the trace has the times of each call inside every nth run of a routine.
    :param wait: Wait up to this many seconds for a daemon to listen; no machine in this process is used instead.
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
    from .client.locations.tracebacks import PUBLIC_ERRORS, hide
    from .interpreter.errors import TensordError

    try:
        return make(
            address,
            ConnectOptions(devices, tracing, strict, keys, engine, frames, name, routines, detail, wait, node, plugins),
        )
    except PUBLIC_ERRORS as error:
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

    :param address: The address of any daemon of the cluster; by default the daemon of this machine, as for `connect`,
        but never a machine in this process. This daemon knows the others.
    :param keys: The client's key file or its directory, by default $TENSORD_KEYS; all daemons have to allow the key.
        The daemon at `address` sends the public keys of the others.
    :param strict: As for `connect`.
    :param frames: As for `connect`.
    :param name: As for `connect`.
    :returns: The session, a context manager.
    :raises MetadataError: The daemon does not belong to a cluster, or the address begins with "ray://".
    :raises ConnectionLost: No daemon answers.
    """
    from .client.cluster.connect import connect_cluster as make
    from .client.locations.locations import located
    from .client.locations.tracebacks import PUBLIC_ERRORS, hide
    from .interpreter.errors import TensordError

    try:
        return make(address, keys, strict=strict, frames=frames, name=name)
    except PUBLIC_ERRORS as error:
        if isinstance(error, TensordError):
            located(error)
        hide(error)
        raise


def _in_a_loop(make: Callable[_Given, Session]) -> Callable[_Given, Connecting]:
    """The awaitable form of `connect` or `connect_cluster`, with the same parameters."""

    def connect_async(*args: _Given.args, **kwargs: _Given.kwargs) -> Connecting:
        """Open a session in an event loop, with the parameters of the function without `_async`.

        Use `async with td.connect_async(...) as session:`, which closes the session at its end, or
        `session = await td.connect_async(...)`. If the task is cancelled meanwhile, the session is closed.
        """
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

    Also a decorator: `@tensord.routine`. The routine takes tensors of the default session, that of `tensord.array_api`;
    for other sessions use `Session.routine`. See docs/routines.md.

    :param function: The function; without one, a decorator is returned.
    :param eager: Call the function each time, without a capture.
    :param passes: The names of the passes that may change the program, or "all" or "none".
    :param constants: Objects whose state at the capture is kept, by their names in CaptureError and the report.
    :returns: The routine, which is called like the function.
    :raises MetadataTypeError: The function is a generator or a coroutine function.
    """
    from functools import partial

    from .client.routines.routine import Routine
    from .client.locations.tracebacks import PUBLIC_ERRORS, hide

    if function is None:
        return partial(routine, eager=eager, passes=passes, constants=constants)
    try:
        return Routine(None, function, eager=eager, passes=passes, constants=constants)
    except PUBLIC_ERRORS as error:
        hide(error)
        raise


def use_opentelemetry(provider: TracerProvider | None = None, *, on: bool = True) -> None:
    """Export the spans of this process's sessions (`session.span`) as spans of OpenTelemetry, too (docs/metrics.md).

    :param provider: The provider of the tracer; by default OpenTelemetry's global one.
    :param on: False turns the export off.
    :raises MetadataError: The package is not installed: ``pip install "tensord[otel]"``.
    """
    from .client.locations.locations import located
    from .client.locations.telemetry import use
    from .client.locations.tracebacks import PUBLIC_ERRORS, hide
    from .interpreter.errors import TensordError

    try:
        use(provider, on=on)
    except PUBLIC_ERRORS as error:
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
    """The public names, loaded or not, without imports of this module."""
    return sorted([*__all__, *_MODULES, "__version__", "__doc__"])
