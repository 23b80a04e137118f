"""Draws memory over time (`memory`) as an SVG: for each device a panel with its bytes in use over time, the peak, and
the copies that used most memory at the peak.

All panels have one time axis, in nanoseconds since the first point of any device. Each panel has a scale of its own for
bytes, up to its peak. Texts of a trace are untrusted: they are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ..recorded.text import duration, printable
from .memory import HOLDERS, DeviceMemory, extent

# Pixels: the picture's width, the height of a curve, and the margins at its left and top
_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 160, 90, 34
_LINE = 16  # height of a line of text
_NAMED_HOLDERS = 3  # holders that are named at the peak, on one line each
_PANEL = _HEIGHT + _TOP + 40 + _NAMED_HOLDERS * _LINE  # height of a panel
_MOST_PIECES = 2_000  # of a curve that is thinned: more than a picture has columns
_LETTERS = 110  # the most letters of a line about a holder
_TICKS = 4  # parts of the time axis


def to_svg(devices: Sequence[DeviceMemory]) -> str:
    """The picture; without devices, the text that no memory was in use."""
    height = max(1, len(devices)) * _PANEL
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
        '<style>text { font-size: 12px }</style><rect width="100%" height="100%" fill="white"/>',
    ]
    if not devices:
        lines.append('<text x="20" y="40">no memory was in use</text>')
    axis = extent(devices)
    for number, device in enumerate(devices):
        lines += _panel(device, number * _PANEL + _TOP, *axis)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(device: DeviceMemory, top: int, begin: int, end: int) -> Iterator[str]:
    """The panel of a device, `top` pixels below the picture's top, for the times from `begin` to `end`."""
    width = _WIDTH - _LEFT - 20

    def x(time: int) -> float:
        return _LEFT + width * (time - begin) / max(1, end - begin)

    def y(amount: int) -> float:
        return top + _HEIGHT * (1 - amount / device.peak)

    points = _thinned(device.curve)
    steps = [f"{x(points[0][0]):.1f},{top + _HEIGHT}"]
    last = 0
    for time, amount in points:
        steps += [f"{x(time):.1f},{y(last):.1f}", f"{x(time):.1f},{y(amount):.1f}"]
        last = amount
    steps += [f"{x(end):.1f},{y(last):.1f}", f"{x(end):.1f},{top + _HEIGHT}"]
    peak_x = x(device.at)
    yield f'<text x="{_LEFT}" y="{top - 14}" font-weight="bold">{_text(device.device)}</text>'
    yield from _ticks(top, width, end - begin)
    yield f'<polygon points="{" ".join(steps)}" fill="#cfe2f3" stroke="#3d6a99"/>'
    yield (
        f'<line x1="{peak_x:.1f}" x2="{peak_x:.1f}" y1="{top}" y2="{top + _HEIGHT}" '
        'stroke="#cc0000" stroke-dasharray="4 3"/>'
    )
    yield f'<text x="{_LEFT + 80}" y="{top - 14}" fill="#cc0000">peak {_size(device.peak)}</text>'
    holders = device.holders(lambda lifetime: f"{HOLDERS['op'](lifetime)} {lifetime.location}".rstrip())
    for number, holder in enumerate(holders[:_NAMED_HOLDERS], 2):
        line = f"{_size(holder.nbytes)} {holder.key}"
        shown = line if len(line) <= _LETTERS else f"{line[:_LETTERS]}\N{HORIZONTAL ELLIPSIS}"
        yield (
            f'<text x="{_LEFT}" y="{top + _HEIGHT + number * _LINE}" fill="#cc0000">{_text(shown)}'
            f"<title>{_text(line)}</title></text>"
        )
    for amount in (0, device.peak):
        yield f'<text x="{_LEFT - 6}" y="{y(amount) + 4:.1f}" text-anchor="end">{_size(amount)}</text>'


def _ticks(top: int, width: int, length: int) -> Iterator[str]:
    """The time axis, the same in each panel."""
    for tick in range(_TICKS + 1):
        at = _LEFT + width * tick / _TICKS
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        time = duration(length * tick // _TICKS) if tick else "0"
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + _HEIGHT}" stroke="#dddddd"/>'
        yield f'<text x="{at:.1f}" y="{top + _HEIGHT + 16}" text-anchor="{anchor}">{time}</text>'


def _size(nbytes: int) -> str:
    """A number of bytes as text, with three digits."""
    amount, units = float(nbytes), ["TiB", "GiB", "MiB", "KiB", "B"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1024
        units.pop()
    return f"{amount:.3g} {units[-1]}"


def _text(text: str) -> str:
    return escape(printable(text))


def _thinned(curve: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The curve, or if it is long, two points of each of at most `_MOST_PIECES` pieces: the highest one, and the last
    one, which holds until the next piece."""
    if len(curve) <= _MOST_PIECES:
        return curve
    step = -(-len(curve) // _MOST_PIECES)
    pieces = (curve[start : start + step] for start in range(0, len(curve), step))
    return [point for piece in pieces for point in (max(piece, key=lambda point: point[1]), piece[-1])]
