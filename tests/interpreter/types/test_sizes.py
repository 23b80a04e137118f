"""Numbers of bytes for people."""

from __future__ import annotations

from tensord.interpreter.types.sizes import exact_size

from ...each_case import each_case


@each_case(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB (1536 bytes)"), (16 << 20, "16 MiB (16777216 bytes)")],
)
def test_a_size_in_an_error_is_readable_and_exact(nbytes: int, text: str) -> None:
    assert exact_size(nbytes) == text
