"""What the machine has made of a routine, for people, and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...interpreter.programs.program import Program
from ...interpreter.types.sizes import size


class Report(dict[str, Any]):
    """The report as a dict; as text, for people.

    `ops`: of the program; `pieces`: what runs one after the other: a segment, which is one instruction, or a step by
    itself; of a segment its device, the number of calls, the bytes of its arena, and the steps of each fusion, which
    are computed together. `values`: the memory mode of each value ("virtual", "local", "on device") and why.
    """

    def __init__(self, program: Program, found: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._program = program

    def __str__(self) -> str:
        pieces = self["pieces"]
        segments = [piece for piece in pieces if piece["how"] == "segment"]
        arena = size(sum(piece["arena"] for piece in segments))
        lines = [f"{self['ops']} ops on {', '.join(self['devices'])}, program {self['program'][:12]}"]
        if not self["compiled"]:
            lines.append("not compiled yet: the first run goes op by op")
            return "\n".join(lines)
        lines.append(f"{len(segments)} segments, {len(pieces) - len(segments)} steps by themselves, {arena} of arena")
        for piece in pieces:
            steps = f"steps {piece['first']} to {piece['last']}"
            if piece["how"] == "segment":
                fusions = "".join(f", fusion of {len(fusion)} steps" for fusion in piece["fusions"])
                lines.append(f"  {steps} on {piece['device']}: {piece['calls']} calls{fusions}")
            else:
                lines.append(f"  {steps}: {piece['how']} {piece['op']}".rstrip())
        for value, (mode, why) in enumerate(self["values"]):
            meta = self._program.metas[value]
            lines.append(f"  %{value} {'?' if meta is None else meta}: {mode}, {why}")
        return "\n".join(lines)
