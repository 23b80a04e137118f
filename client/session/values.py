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
from ..host_arrays.uploads import as_tensor, padded
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor
from ..waiting.steps import Awaiting, Steps, on_thread
from .parts import Facet, Parts, listed


class Values(Facet):
    """Values on their way: uploads, fetches, and memory of the host."""

    def asarray(
        self,
        values: ArrayLike | Tensor,
        device: Device | None = None,
        *,
        dtype: Any = None,
        padded_to: Sequence[int] | None = None,
        fill: Scalar = 0,
    ) -> Tensor:
        """A tensor with a copy of those values, on its home `device` (the first one unless given). Returns at once.

        Takes what `numpy.asarray` takes; the caller's array may change afterwards. What lies in an `empty_host` array
        is not copied, and cannot be written until it was read. With `padded_to`, a shape, the values are the beginning
        of a tensor of that shape along each axis, and the rest, which is `fill`, is made on the device. MetadataError
        for dtypes that tensord does not have, devices that do not exist, values that are no part of `padded_to`, and a
        `fill` that the dtype does not hold.
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
        """A global tensor: values in parts on the devices of a placement, by default the session's. Returns at once.

        `layout`: `td.split(axis)`, `td.broadcast` (the default) or `td.partial("sum")`; a tuple of them for a grid of
        two dimensions. Of an array each device gets only its part; of a tensor, what moves does so in the machine.
        `parts`: plain tensors in place of values, one on each device. MetadataError for what does not fit.
        """
        where = self._core.placement if placement is None else placement
        if parts is not None:
            if values is not None:
                raise located(MetadataTypeError("global_tensor: takes values, or parts=, not both"))
            return of_parts(self._core, listed(parts), where, layout, dtype)
        return global_tensor(self._core, values, where, layout, dtype)

    def empty_host(self, shape: int | Sequence[int], dtype: Any = None) -> NDArray[Any]:
        """A NumPy array to be filled, contents undefined: `asarray` of it, or of a packed view, copies nothing.

        float64 by default. `asarray` hands it over: it cannot be written until the machine has read it; on a cpu
        device, until the tensor is gone. Copied are arrays below 64 KiB, integers and bools (once, by the machine), and
        everything over tcp. MetadataError for shapes and dtypes that tensord does not have. See docs/host_arrays.md.
        """
        return new_host_array(self._core, host_meta("empty_host", shape, dtype))

    def pool(self, shape: int | Sequence[int], dtype: Any = None, count: int = 0, *, grow: bool = True) -> HostPool:
        """A pool of `empty_host` arrays: `count` at first, and with `grow` as many more as `get` has to make."""
        return HostPool(self._core, host_meta("pool", shape, dtype), count, grow=grow)

    def host_results(self) -> HostResults:
        """`with session.host_results():` results of the ops inside come near the host while later ones are computed.

        A fetch finds them there. They stay on their devices, too. Temporaries do not move, as far as they are gone by
        then, nor do `results.leave(x)` (with `as results`), in-place results, and those whose size data decide. The
        block is about all ops of the session meanwhile. MetadataError without a cpu device.
        """
        return HostResults(self._core)

    def fetch(self, tensors: Iterable[Tensor]) -> list[NDArray[Any]]:
        """The values of several tensors as NumPy arrays (see `Tensor.numpy`), in one round trip instead of one each.

        Waits for all of them; raises the error of the first that has one, with the line of the call that failed.
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
