"""Durations on the command line: `10s`, `500ms`, `2min`, `1h`."""

from __future__ import annotations

import re
from typing import Final

import click

_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """A duration in seconds; None for a text that is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?", text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2] or "s"]


class Seconds(click.ParamType[float]):
    """A duration: `10s`, `500ms`, `2min`, `1h`, or seconds without a unit."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds. BadParameter if it is none."""
        found = seconds(value)
        if found is None:
            self.fail(f"{value!r} is no duration; write it like 10s, 500ms or 2min", param, ctx)
        return found


class Since(click.ParamType["float | int"]):
    """Where a dump begins: a float is seconds before it is taken (`10s`), an integer an instruction (`4711`)."""

    name = "time|id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float | int:
        """The number. BadParameter if the text is neither a duration with its unit nor an id."""
        if value.removeprefix("#").isdecimal():
            return int(value.removeprefix("#"))
        found = seconds(value)
        if found is None or value.strip()[-1].isdecimal():
            self.fail(f"{value!r} is neither a time like 10s, 500ms or 2min, nor the id of an instruction", param, ctx)
        return found
