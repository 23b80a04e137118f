"""The nodes of a CUDA graph whose arguments change between launches of the graph.

A kernel of our own is one node, which takes any arguments. A library's launch is baked into the graph with its
addresses. So an argument that moves has a fixed address in the graph's memory: a copy node before the library's call
brings the argument there, another behind the call takes the result away, and only these two nodes are patched. The
fixed address has the alignment of the argument, since libraries choose kernels by alignment.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from .driver import Driver
from .own_kernel import KernelLaunch, OwnKernel

ALIGNMENT: Final = 256  # bytes: CuPy's blocks have this alignment, and a library may choose a kernel by it
SLOT_BYTES: Final = 16  # bytes of an argument: a pointer, or a number of at most that size
MAX_COPY_BYTES: Final = 1 << 30  # the driver needs the length of a row to be less than 2 GiB


class Patchable(Protocol):
    """The nodes of one call."""

    def patch(self, driver: Driver, executable: int, arguments: Sequence[Any]) -> bool:
        """Use other arguments. Returns False and changes nothing if these arguments cannot be used."""


class OwnNode:
    """The node of a kernel of our own, and the bytes of its arguments."""

    def __init__(self, kernel: OwnKernel, launch: KernelLaunch, node: int, driver: Driver) -> None:
        self._kernel = kernel
        self._node = node
        count = len(launch.arguments)
        self._packed = ctypes.create_string_buffer(SLOT_BYTES * count)
        start = ctypes.addressof(self._packed)
        self._pointers = (ctypes.c_void_p * count)(*[start + SLOT_BYTES * n for n in range(count)])
        self._parameters = driver.kernel()
        self._parameters.kernelParams = ctypes.addressof(self._pointers)

    def patch(self, driver: Driver, executable: int, arguments: Sequence[Any]) -> bool:
        poisoned = any(each is None for each in arguments)
        launch = None if poisoned else self._kernel.launch_of(arguments)
        if launch is None or len(launch.arguments) != len(self._pointers):
            return False  # another kernel, or a library call, would be launched
        self._put(launch)
        driver.set_kernel(executable, self._node, self._parameters)
        return True

    def _put(self, launch: KernelLaunch) -> None:
        parameters, packed = self._parameters, self._packed
        parameters.func = launch.function.ptr
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = (*launch.grid, 1, 1)[:3]
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = (*launch.block, 1, 1)[:3]
        for n, argument in enumerate(launch.arguments):
            number = struct.pack("=Q", argument.data.ptr) if is_array(argument) else argument.tobytes()
            struct.pack_into(f"{SLOT_BYTES}s", packed, SLOT_BYTES * n, number)


class CopiedArgument:
    """An argument at its fixed address. `before`, `behind`: the copy nodes to that address and from it; 0 for none."""

    def __init__(self, fixed: Any, argument: Any, context: Any) -> None:
        self.fixed = fixed
        self.before = self.behind = 0
        self._form = form_of(argument)
        self._context = context

    def takes(self, argument: Any) -> bool:
        """Return whether the argument can be copied here."""
        return is_array(argument) and form_of(argument) == self._form

    def patch(self, driver: Driver, executable: int, argument: Any) -> None:
        """Copy that argument from now on."""
        here, there, nbytes = self.fixed.data.ptr, argument.data.ptr, argument.nbytes
        if self.before:
            driver.set_copy(executable, self.before, here, there, nbytes, self._context)
        if self.behind:
            driver.set_copy(executable, self.behind, there, here, nbytes, self._context)


class FixedNodes:
    """The nodes of a library call. `copies`: by the position of the argument that moves."""

    def __init__(self, arguments: Sequence[Any], copies: Mapping[int, CopiedArgument]) -> None:
        self._baked = [None if position in copies else fixed_part(each) for position, each in enumerate(arguments)]
        self._copies = dict(copies)
        self._last = {position: arguments[position].data.ptr for position in copies}

    def patch(self, driver: Driver, executable: int, arguments: Sequence[Any]) -> bool:
        if len(arguments) != len(self._baked) or not all(
            self._copies[position].takes(each)
            if position in self._copies
            else fixed_part(each) == self._baked[position]
            for position, each in enumerate(arguments)
        ):
            return False
        for position, copy in self._copies.items():
            address = arguments[position].data.ptr
            if address != self._last[position]:
                copy.patch(driver, executable, arguments[position])
                self._last[position] = address
        return True


def is_array(argument: Any) -> bool:
    """Return whether the argument is an array on a GPU."""
    return hasattr(type(argument), "__cuda_array_interface__")


def form_of(array: Any) -> tuple[Any, ...]:
    """All facts on which a library's choice of a kernel may depend: shape, dtype, strides, alignment."""
    return array.shape, array.dtype, array.strides, array.data.ptr % ALIGNMENT


def fixed_part(argument: Any) -> tuple[Any, ...]:
    """The part of an argument that is baked into a node: an array's address and form, a number's bits."""
    return (argument.data.ptr, *form_of(argument)) if is_array(argument) else (type(argument), repr(argument))


def is_dense(array: Any) -> bool:
    """Return whether one copy node can copy the array: it has no gaps, and at most `MAX_COPY_BYTES` bytes."""
    if not is_array(array) or not 0 < array.nbytes <= MAX_COPY_BYTES:
        return False
    return bool(array.flags.c_contiguous or array.flags.f_contiguous)
