"""Kernels bound to an array module and attributes: functions of operands and results, given one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .opdef import ArrayModule, Arrays, Attributes, BoundKernel, Kernel


def with_attributes(kernel: Kernel, xp: ArrayModule, count: int, attributes: Attributes) -> BoundKernel:
    """The kernel itself. The first `count` arrays are its operands."""

    def run(*arrays: Any) -> Arrays | None:
        return kernel(xp, arrays[:count], arrays[count:], attributes)

    return run


def unless_empty(kernel: Kernel, xp: ArrayModule, count: int, attributes: Attributes) -> BoundKernel:
    """The kernel, called only if a result has elements.

    A tensor without elements may have axes of any size, over which a kernel would loop or allocate.
    """

    def run(*arrays: Any) -> Arrays | None:
        outputs = arrays[count:]
        for out in outputs:
            if out.size:
                return kernel(xp, arrays[:count], outputs, attributes)
        return None

    return run


def storing_at_end(bound: BoundKernel, xp: ArrayModule, count: int) -> BoundKernel:
    """The kernel with its results computed in other memory and stored at the end."""

    def run(*arrays: Any) -> None:
        results = [xp.array(out) for out in arrays[count:]]
        bound(*arrays[:count], *results)
        for out, result in zip(arrays[count:], results, strict=True):
            out[...] = result

    return run


def storing_at_end_if_shared(bound: BoundKernel, xp: ArrayModule, count: int) -> BoundKernel:
    """A kernel that overwrites a part of its first operand.

    Its results are stored at the end only if another operand shares memory with them.
    """
    copying = storing_at_end(bound, xp, count)

    def run(*arrays: Any) -> Any:
        read = (array for array in arrays[1:count] if hasattr(array, "shape"))
        shared = any(xp.may_share_memory(arrays[count], array) for array in read)
        return (copying if shared else bound)(*arrays)

    return run
