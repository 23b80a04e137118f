"""What the machine has made of a routine, for people, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...interpreter.types.sizes import size


class Report(dict[str, Any]):
    """The report as a dict; as text, for people.

    `ops`: of the program; `passes`: what each pass has done to it: how many ops, calls, values or bytes there were
    `before` and `after`; `without_passes`: runs that could not be those of the program after passes. All else is about
    what they have left. `pieces`: what runs one after the other: a segment, which is one instruction, or a step by
    itself; of a segment its device, the number of calls, the bytes of its arena, and the steps of each fusion, which
    are computed together. `values`: the memory mode of each value ("virtual", "local", "on device") and why; `metas`:
    what each is.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        super().__init__(found)

    def __str__(self) -> str:
        lines = [f"{self['ops']} ops on {', '.join(self['devices'])}, program {self['program'][:12]}"]
        lines += [pass_line(row) for row in self["passes"] if row["changed"]]
        if self["without_passes"]:
            lines.append(f"  {self['without_passes']} runs without passes, as their tensors did not allow them")
        lines += [f"  {name}: constant, as at the capture" for name in self.get("constants", ())]
        lines += self._compiled() if self["compiled"] else ["not compiled yet: the first run goes op by op"]
        return "\n".join(lines)

    def _compiled(self) -> Iterator[str]:
        pieces = self["pieces"]
        segments = [piece for piece in pieces if piece["how"] == "segment"]
        arena = size(sum(piece["arena"] for piece in segments))
        yield f"{len(segments)} segments, {len(pieces) - len(segments)} steps by themselves, {arena} of arena"
        for piece in pieces:
            steps = f"steps {piece['first']} to {piece['last']}"
            if piece["how"] == "segment":
                fusions = "".join(f", fusion of {len(fusion)} steps" for fusion in piece["fusions"])
                yield f"  {steps} on {piece['device']}: {piece['calls']} calls{fusions}"
            else:
                yield f"  {steps}: {piece['how']} {piece['op']}".rstrip()
        for value, ((mode, why), meta) in enumerate(zip(self["values"], self["metas"], strict=True)):
            yield f"  %{value} {meta}: {mode}, {why}"


def pass_line(row: Mapping[str, Any]) -> str:
    """`  dead_results: 34 to 31 ops`."""
    before, after, of = row["before"], row["after"], row["of"]
    if before == after:
        return f"  {row['pass']}: {before} {of}, changed"
    if of == "bytes":
        return f"  {row['pass']}: {size(before)} to {size(after)}"
    return f"  {row['pass']}: {before} to {after} {of}"
