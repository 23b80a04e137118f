"""Many small calls on one device whose results are fetched at once, and then compared with the expected ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

from ..equality import is_on_gpu
from .special import PARTS, Case, column, complex_column, failures

Check = Callable[[np.ndarray], Iterable[str]]
# Vector instructions take several elements at a time, and the remaining ones alone: both see every case.
COPIES = 3


def failure_alone(case: Case, found: np.ndarray, *, rounded: bool = False) -> list[str]:
    """The differences of one result from the expected one."""
    return failures([case], found[None], rounded=rounded)


class Batch:
    """Results that are still to come, each with its check, which returns the differences."""

    def __init__(self, session: Session, device: str) -> None:
        self.session = session
        self.xp = session.xp
        self.device = device
        self.rounded = is_on_gpu(device)  # finite results are to the precision of the dtype
        self._results: list[tuple[str, Tensor, Check]] = []

    def tensor(self, values: Any, dtype: str | None = None) -> Tensor:
        """A tensor on the device."""
        return self.session.asarray(np.asarray(values, dtype), self.device)

    def expect(self, label: str, result: Tensor, check: Check) -> None:
        """Add a result, with its check."""
        self._results.append((label, result, check))

    def equal(self, label: str, result: Tensor, expected: Any) -> None:
        """Add a result to be compared: same shape and values, the sign of zeros included."""
        self.expect(label, result, lambda found: different(found, np.asarray(expected)))

    def settle(self) -> None:
        """Fetch all results, and fail with all differences."""
        results, self._results = self._results, []
        found = self.session.fetch(result for _, result, _ in results)
        wrong = [
            f"{label} on {self.device}: {sentence}"
            for (label, result, check), array in zip(results, found, strict=True)
            for sentence in (check(array) if result.device == self.device else [f"is on {result.device}"])
        ]
        assert not wrong, "\n".join([f"{len(wrong)} results are not as they should be", *wrong[:40]])

    # --- the cases of tables

    def cases(self, function: Callable[..., Tensor], cases: list[Case], dtype: str, label: str = "") -> None:
        """Call the function on all cases at once, packed and strided, and on one of each rule without dimensions."""
        label = f"{label or function.__name__}, {dtype}"
        for step in (1, 2):
            operands = [self.tensor(np.repeat(np.tile(each, COPIES), step))[::step] for each in columns(cases, dtype)]
            check = lambda found: dict.fromkeys(failures(cases, found, rounded=self.rounded))  # noqa: E731 - one line
            self.expect(f"{label}, step {step}", function(*operands), check)
        for case in {each.line: each for each in reversed(cases)}.values():
            alone = [self.tensor(each[0]) for each in columns([case], dtype)]
            self.expect(f"{label}, alone", function(*alone), partial(failure_alone, case, rounded=self.rounded))

    def scalars(self, function: Callable[..., Tensor], cases: list[Case], dtype: str, position: int) -> None:
        """Call the function of two real numbers with Python's in one place."""
        groups: dict[bytes, list[Case]] = {}
        for case in cases:
            groups.setdefault(struct.pack("d", case.operands[position]), []).append(case)
        for group in groups.values():
            operands: list[Any] = [self.tensor(each) for each in columns(group, dtype)]
            operands[position] = group[0].operands[position]
            label = f"{function.__name__} with a scalar, {dtype}"
            self.expect(label, function(*operands), partial(failures, group, rounded=self.rounded))


def awake(session: Session) -> Session:
    """The session with its devices' threads started: otherwise the test that starts them would fail as leaking them."""
    large = [session.asarray(np.ones(1 << 18), device) for device in session.devices]
    session.fetch([x * x for x in large])
    return session


def columns(cases: list[Case], dtype: str) -> list[np.ndarray]:
    """The operands of the cases, of that dtype."""
    count = len(cases[0].operands)
    if dtype in PARTS:
        return [complex_column(cases, position, dtype) for position in range(count // 2)]
    return [column(cases, position, dtype) for position in range(count)]


def different(found: np.ndarray, expected: np.ndarray) -> list[str]:
    """Nothing, or a sentence."""
    same = found.shape == expected.shape and np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc")
    if same and found.dtype.kind == "f":
        same = np.array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))
    return [] if same else [f"{found!r} instead of {expected!r}"]
