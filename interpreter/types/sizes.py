"""Numbers of bytes as readable text."""

from __future__ import annotations


def size(nbytes: int) -> str:
    """`0`, `512 B`, `1.5 KiB`, `64 MiB`."""
    if abs(nbytes) < 1024:
        return f"{nbytes} B" if nbytes else "0"
    value = nbytes / 1024
    units = ["TiB", "GiB", "MiB", "KiB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1024
        units.pop()
    return f"{value:.3g} {units[-1]}" if abs(value) < 999.5 else f"{value:,.0f} {units[-1]}"


def exact_size(nbytes: int) -> str:
    """`512 bytes`, `16 MiB (16777216 bytes)`: for error messages, where each byte may matter."""
    return f"{nbytes} bytes" if abs(nbytes) < 1024 else f"{size(nbytes)} ({nbytes} bytes)"
