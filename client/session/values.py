"""From arrays to tensors and back, as methods of a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from ...interpreter.errors import MetadataTypeError
from ...interpreter.layouts.placement import Placement
from ...interpreter.types.meta import Scalar
from ..calls.checks import Device, own
from ..global_tensors.making import global_tensor, of_parts
from ..global_tensors.tensor import GlobalTensor
from ..global_tensors.values import fetching_all
from ..host_arrays.host_arrays import HostPool, host_meta, new_host_array
from ..host_arrays.host_results import HostResults
from ..host_arrays.padding import padded
from ..host_arrays.uploads import as_tensor
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor
from ..waiting.steps import Awaiting, Steps, on_thread
from .parts import Facet, Parts, listed


class Values(Facet):
    """Uploads, fetches, and memory of the host."""

    def asarray(
        self,
        values: ArrayLike | Tensor,
        device: Device | None = None,
        *,
        dtype: Any = None,
        padded_to: Sequence[int] | None = None,
        fill: Scalar = 0,
    ) -> Tensor:
        """Make a tensor with a copy of values. Returns at once.

        The caller's array may change afterwards. An `empty_host` array is not copied, and cannot be written until the
        machine has read it.

        :param values: A tensor, or anything that `numpy.asarray` accepts.
        :param device: The home of the tensor; by default the first device.
        :param dtype: The dtype of the tensor; by default that of the values.
        :param padded_to: A larger shape for the tensor. The values are its first elements along each axis; the other
            elements are filled on the device.
        :param fill: The value of the other elements.
        :returns: The tensor.
        :raises MetadataError: tensord does not have the dtype, the device does not exist, the values do not fit into
            `padded_to`, or the dtype cannot hold `fill`.
        """
        if padded_to is not None:
            return padded(self._core, as_tensor(self._core, values, device, dtype), padded_to, fill)
        return as_tensor(self._core, values, device, dtype)

    def global_tensor(
        self,
        values: Any = None,
        placement: Placement | None = None,
        layout: Any = None,
        *,
        parts: Sequence[Tensor] | None = None,
        dtype: Any = None,
    ) -> GlobalTensor:
        """Make a global tensor: values in parts on the devices of a placement. Returns at once.

        Each device gets only its part of an array; parts of a tensor move within the machine.

        :param values: A tensor, or anything that `numpy.asarray` accepts.
        :param placement: The devices; by default the session's placement.
        :param layout: ``td.split(axis)``, ``td.broadcast`` (the default) or ``td.partial("sum")``; a tuple of them for
            a grid of two dimensions.
        :param parts: Plain tensors in place of `values`, one on each device.
        :param dtype: The dtype of the tensor; by default that of the values.
        :returns: The global tensor.
        :raises MetadataError: Values, parts, layout and placement do not fit together.
        """
        where = self._core.placement if placement is None else placement
        if parts is not None:
            if values is not None:
                raise located(MetadataTypeError("global_tensor: takes values, or parts=, not both"))
            return of_parts(self._core, listed(parts), where, layout, dtype)
        return global_tensor(self._core, values, where, layout, dtype)

    def empty_host(self, shape: int | Sequence[int], dtype: Any = None) -> NDArray[Any]:
        """Make a NumPy array to be filled. `asarray` of it, or of a packed view, copies nothing.

        The contents are undefined. `asarray` hands the array over: it cannot be written until the machine has read it;
        on a cpu device, until the tensor is released. Arrays below 64 KiB, integers and bools are copied (once, by the
        machine), and so is everything over tcp. See docs/host_arrays.md.

        :param shape: The shape of the array.
        :param dtype: The dtype of the array; float64 by default.
        :returns: The array.
        :raises MetadataError: tensord does not have the shape or the dtype.
        """
        return new_host_array(self._core, host_meta("empty_host", shape, dtype))

    def pool(self, shape: int | Sequence[int], dtype: Any = None, count: int = 0, *, grow: bool = True) -> HostPool:
        """Make a pool of `empty_host` arrays.

        :param shape: The shape of each array.
        :param dtype: The dtype of each array; float64 by default.
        :param count: The initial number of arrays.
        :param grow: Whether `get` makes another array when none is free.
        :returns: The pool.
        :raises MetadataError: tensord does not have the shape or the dtype.
        """
        return HostPool(self._core, host_meta("pool", shape, dtype), count, grow=grow)

    def host_results(self) -> HostResults:
        """`with session.host_results():` copy results of the ops inside to the host while later ops run.

        A fetch finds the copies there. The results stay on their devices, too. Not copied are temporaries that have
        been released, results passed to `results.leave(x)` (with ``as results``), in-place results, and results whose
        size depends on data. The block applies to all ops that any thread issues on the session while it is open.

        :returns: A context manager.
        :raises MetadataError: The machine has no cpu device.
        """
        return HostResults(self._core)

    def fetch(self, tensors: Iterable[Tensor]) -> list[NDArray[Any]]:
        """Return the values of several tensors in one round trip instead of one each. Waits for all of them.

        :param tensors: The tensors.
        :returns: NumPy arrays as from `Tensor.numpy`, in the order of the tensors.
        :raises TensordError: The error of the first tensor that has one, with the line of the call that failed.
        """
        return on_thread(self._core.outbox, fetching(self._core, listed(tensors)))

    def fetch_async(self, tensors: Iterable[Tensor]) -> Awaiting[list[NDArray[Any]]]:
        """`arrays = await session.fetch_async(tensors)`: their values as of this call. See `fetch`."""
        return self._awaiting(fetching(self._core, listed(tensors)))


make_public(Values)


# -- the steps ---------------------------------------------------------------------------------------------------------


def fetching(core: Parts, tensors: Iterable[Tensor]) -> Steps[list[NDArray[Any]]]:
    if not isinstance(tensors, Iterable):
        raise located(MetadataTypeError(f"fetch: takes a list of tensors, not {type(tensors).__name__}"))
    return (yield from fetching_all(core, [own(core, tensor) for tensor in tensors]))
