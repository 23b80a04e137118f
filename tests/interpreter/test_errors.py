"""Stored errors keep no frames alive, and gather none when they are raised again."""

from __future__ import annotations

from collections.abc import Callable

from tensord.interpreter.errors import DeviceMemoryError, KernelError, kernel_error, without_frames

from ..each_case import each_case


def throw(error: Exception) -> None:
    raise error


def throw_while_handling(error: Exception) -> None:
    try:
        throw(LookupError("handled"))
    except LookupError:
        raise error from raised(ValueError("the cause"))


def raised(error: Exception, how: Callable[[Exception], None] = throw) -> Exception:
    """The error, with a traceback."""
    try:
        how(error)
    except Exception as caught:
        return caught
    raise AssertionError("not raised")


def test_a_kept_error_and_its_causes_have_no_frames() -> None:
    error = raised(KernelError("failed"), throw_while_handling)
    assert error.__traceback__ is not None
    assert without_frames(error) is error
    assert (error.__traceback__, error.__context__) == (None, None)
    assert isinstance(error.__cause__, ValueError)
    assert error.__cause__.__traceback__ is None


@each_case(
    ("cause", "kind"),
    [
        (MemoryError("no block"), DeviceMemoryError),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), DeviceMemoryError),
        (RuntimeError("CUFFT_ALLOC_FAILED"), DeviceMemoryError),
        (RuntimeError("CURAND_STATUS_ALLOCATION_FAILED"), DeviceMemoryError),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), DeviceMemoryError),
        (RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"), DeviceMemoryError),
        (RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED"), KernelError),
        (ValueError("ALLOC_FAILED"), KernelError),
    ],
)
def test_a_kernel_that_lacks_memory_says_so_whoever_noticed(cause: Exception, kind: type[Exception]) -> None:
    error = kernel_error(cause, "it failed", op="matmul", location=None)
    assert isinstance(error, kind)
    assert isinstance(error, DeviceMemoryError) is (kind is DeviceMemoryError)


def test_the_exception_that_was_being_handled_keeps_its_own() -> None:
    """It may be the user's own exception, still being handled."""
    error = raised(KernelError("failed"), throw_while_handling)
    handled = error.__context__
    without_frames(error)
    assert handled is not None
    assert handled.__traceback__ is not None


def test_causes_may_go_in_circles() -> None:
    first, second = KernelError("first"), KernelError("second")
    first.__cause__, second.__cause__ = second, first
    assert without_frames(first) is first


def test_a_copy_for_raising_leaves_the_kept_one_as_it_was() -> None:
    kept = KernelError("failed", op="add", location="here", instruction=3)
    for _ in range(3):
        copy = raised(kept.reraisable())
        assert isinstance(copy, KernelError)
        assert (copy.message, copy.op, copy.location, copy.instruction) == ("failed", "add", "here", 3)
    assert kept.__traceback__ is None
