"""Another device in place of one that the tests name: tests that are written for any device then run on it.

    pytest tests/behaviours --device cuda:0                         # in place of each sim device: cpu:0 and cuda:0
    pytest tests/behaviours --device cuda:0 --in-place-of cpu       # in place of each cpu device: nothing but cuda:0

The device opens under the name that the test gives it, so the test's expectations of "sim:0" apply to it. All such
names are the one requested device. A test of behaviour that only the simulator or the host has (delays, faults, streams
and kernels that stand still) is skipped, and says so. Daemons that tests start get the same device, by an environment
variable: `python -m tests.stand_in` is `tensord` with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from inspect import unwrap
from typing import Any, NoReturn
from unittest.mock import patch

from tensord.streams.catalogue import KINDS
from tensord.streams.cuda.cuda import CudaDevice
from tensord.streams.cuda.options import CudaOptions
from tensord.streams.device import Device
from tensord.streams.stream import Sink

VARIABLE = "TENSORD_TEST_STAND_IN"  # "sim=cuda:0": cuda:0 in place of each sim device
# Options that hardware has not.
SIMULATED = ("bandwidth", "latency", "compute_delay", "compute_rate", "late_errors", "faults")
CONTROLS = frozenset({"hold", "resume", "inject", "faults", "release_hangs", "owns"})  # methods of a simulated device

HELD_UP = frozenset({"make_gate", "Gate"})  # how tests hold a kernel up on the host
# In place of the cpu device there is none: these modules and tests are about the host.
EFFECTS = "side effects need a cpu device"
VIEWS = "results that are views of a host's memory"
WORKERS = "several workers of one device"
MEMORY = "tensors in the host's memory, and limits of it"
FILES = "checkpoints are written from a cpu device"
DEVICES = "it is about more than one device"
OF_THE_HOST = {
    "test_effects.py": EFFECTS,
    "test_a_callback_may_keep_its_arrays": EFFECTS,
    "test_a_callback_that_waits_is_an_error_not_a_deadlock": EFFECTS,
    "test_a_group_that_cannot_be_sent_now_is_sent_later": EFFECTS,
    "test_a_handle_may_be_collected_anywhere": EFFECTS,
    "test_a_handle_may_be_dropped_anywhere": EFFECTS,
    "test_after_cancel_and_restart_side_effects_happen_again": EFFECTS,
    "test_a_wait_is_interrupted": EFFECTS,
    "test_an_error_in_a_chain_stops_what_follows_in_it": EFFECTS,
    "test_print_shows_values_in_program_order": EFFECTS,
    "test_side_effects_and_moves_go_with_the_group": EFFECTS,
    "test_side_effects_happen_in_program_order": EFFECTS,
    "test_a_mapped_result_is_copied_for_whom_it_is_handed_to": VIEWS,
    "test_without_a_copy_a_mapped_result_is_handed_over_read_only_or_not_at_all": VIEWS,
    "test_a_hanging_copy_is_named_after_a_quiet_time": DEVICES,
    "test_a_hanging_kernel_is_named_while_the_others_go_on": DEVICES,
    "test_a_tensor_on_the_host_lies_in_the_array_until_it_is_gone": MEMORY,
    "test_a_part_of_less_than_half_is_copied_by_the_machine": MEMORY,
    "test_two_tensors_may_lie_in_one_array": MEMORY,
    "test_a_name_keeps_the_array_beyond_the_session": MEMORY,
    "test_a_limit_of_the_host_concerns_what_lies_in_host_arrays": MEMORY,
    "test_a_size_that_data_decide_and_no_device_has_is_an_error_of_that_op": MEMORY,
    "test_a_checkpoint_of_which_files_are_gone_is_to_be_taken_again": FILES,
    "test_closed_machines_keep_no_removed_generation_on_the_disk": FILES,
    "test_no_file_is_open_once_a_machine_is_closed": FILES,
    "test_no_file_is_open_once_a_machine_with_a_fault_is_closed": FILES,
    "test_no_file_is_open_once_a_machine_with_durable_names_and_a_store_is_closed": FILES,
    "test_what_a_name_held_in_files_is_closed_while_the_machine_goes_on": FILES,
    "test_a_session_ends_with_its_last_reference[effects]": EFFECTS,
    "test_a_result_waits_for_the_memory_of_an_operand_that_only_a_checkpoint_reads": FILES,
    "test_a_pending_meta_delays_no_other_session": WORKERS,
    "test_a_barrier_waits_for_what_came_before_and_holds_nothing_later_back": WORKERS,
    "test_two_reads_of_one_tensor_run_side_by_side": WORKERS,
}
# In place of any device a GPU runs routines op by op (`Device.segments`): these are about runs as one instruction.
SEGMENTS = "a GPU runs routines op by op"
CUPYS = "CuPy has the special functions, whether SciPy is there or not"
OF_NO_GPU = {
    "test_a_run_whose_operand_stops_over_where_the_session_has_its_share_is_refused_at_that_step": SEGMENTS,
    "test_in_a_daemon": CUPYS,
    "test_no_value_of_a_segment_lies_in_memory_of_the_host": SEGMENTS,
    "test_it_times_the_calls_inside_of_each_nth_run_of_a_routine": SEGMENTS,
}

Refuse = Callable[[str], object]


def nothing(_reason: str) -> None:
    """Continue without features that the device lacks."""


def chosen() -> tuple[str, str] | None:
    """(kind that is replaced, device in its place), if the environment says so."""
    kind, _, device = os.environ.get(VARIABLE, "").partition("=")
    return (kind, device) if device else None


def unfit(test: Any) -> str:
    """Why a test cannot be run on the device that stands in; "" if it can."""
    choice = chosen()
    if choice is None:
        return ""
    for name in (test.originalname, test.name, test.path.name):
        if choice[0] == "cpu" and (reason := OF_THE_HOST.get(name)):
            return reason
    if is_cuda() and (reason := OF_NO_GPU.get(test.originalname)):
        return reason
    function: Any = getattr(test, "function", None)
    names = getattr(getattr(unwrap(function), "__code__", None), "co_names", ())
    return "a kernel of a GPU is no function that waits" if is_cuda() and HELD_UP.intersection(names) else ""


def too_many(specs: Sequence[Any] | None) -> str:
    """The reason why a session on these devices is impossible; "" if it is possible. In place of cpu devices there is
    only one device.
    """
    names = [spec if isinstance(spec, str) else spec.get("name", "") for spec in specs or ["cpu:0"]]
    if (chosen() or ("", ""))[0] == "cpu" and names != ["cpu:0"]:
        return DEVICES
    return ""


def is_cuda() -> bool:
    """Does a real GPU stand in for another device?"""
    return (chosen() or ("", ""))[1].startswith("cuda")


@contextmanager
def installed(refuse: Refuse = nothing) -> Iterator[None]:
    """Within the block devices of that kind are the other one. `refuse` gets the reason if a device here lacks a
    feature.
    """
    choice = chosen()
    if choice is None:
        yield
        return
    kind, device = choice
    with patch.dict(KINDS, {kind: replace(KINDS[kind], open=opener(device, refuse))}):
        yield


def opener(device: str, refuse: Refuse) -> Callable[[str, Sink, Any], Device]:
    """The function that opens that device under another name."""
    kind, _, ordinal = device.partition(":")
    if kind == "cuda":
        return gpu(int(ordinal), refuse)
    target = KINDS[kind]

    def open_under(name: str, sink: Sink, options: Any) -> Device:
        return target.open(name, sink, translated(options, target.options))

    return open_under


def gpu(number: int, refuse: Refuse) -> Callable[[str, Sink, Any], Device]:
    """The GPU of that number under any name."""

    class StandIn(CudaDevice):
        ordinal = property(lambda _: number, lambda *_: None)

        def __getattr__(self, name: str) -> Any:
            if name in CONTROLS:
                refuse(f"a GPU has no {name}()")
            raise AttributeError(name)

    def open_under(name: str, sink: Sink, options: Any) -> Device:
        for option in SIMULATED:
            if getattr(options, option, None):
                refuse(f"a GPU has no option {option!r}")
        given = translated(options, CudaOptions)
        if name.startswith("cpu"):
            given = CudaOptions(cache=given.cache, missing=given.missing)  # the host's memory is no measure
        return StandIn(name, sink, given)

    return open_under


def translated(options: Any, wanted: type[Any]) -> Any:
    """The options that both kinds have."""
    both = {field.name for field in fields(wanted)} & {field.name for field in fields(options)}
    return wanted(**{name: getattr(options, name) for name in both})


def main() -> NoReturn:
    """`tensord` on the command line."""
    from tensord.client.cli.main import main as tensord

    with installed():
        tensord()


if __name__ == "__main__":
    main()
