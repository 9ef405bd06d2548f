"""A line chart as a small SVG file: axes from zero, round ticks, one colour a line, a key beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil, floor, log10
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 44, 48
LINE_HEIGHT = 18
COLOURS = ("#c2410c", "#0b6e99", "#4d7c0f", "#7e22ce", "#525252")
TICKS = 5
FONT = 'font-family="sans-serif" font-size="12"'

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; `marked` shows its points."""

    name: str
    points: Sequence[Point]
    marked: bool = False


def line_chart(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """The text of an SVG file."""
    x_ticks = ticks(max(x for line in lines for x, _ in line.points))
    y_ticks = ticks(max(y for line in lines for _, y in line.points))

    def place(point: Point) -> Point:
        x, y = point[0] / x_ticks[-1], point[1] / y_ticks[-1]
        return LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, title, 'font-size="14"'),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, 'text-anchor="middle"'),
        _text(LEFT, TOP - 6, y_label),
        *_axes(x_ticks, y_ticks, place),
    ]
    for index, (line, colour) in enumerate(zip(lines, cycle(COLOURS), strict=False)):
        parts += _line([place(point) for point in line.points], colour, marked=line.marked)
        parts.append(
            _text(WIDTH - RIGHT + 12, TOP + LINE_HEIGHT * (index + 1), line.name, f'fill="{colour}"')
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def ticks(largest: float) -> list[float]:
    """Round numbers from zero to at least `largest`, at most seven of them."""
    rough = largest / TICKS
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [round(step * index, 10) for index in range(ceil(largest / step * 0.999) + 1)]


def _axes(
    x_ticks: Sequence[float], y_ticks: Sequence[float], place: Callable[[Point], Point]
) -> Iterator[str]:
    for tick in x_ticks:
        x, y = place((tick, 0.0))
        yield _text(x, y + 16, f"{tick:g}", 'text-anchor="middle"')
    for tick in y_ticks:
        x, y = place((0.0, tick))
        yield f'<path d="M{x:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(x - 6, y + 4, f"{tick:g}", 'text-anchor="end"')


def _line(places: Sequence[Point], colour: str, *, marked: bool) -> Iterator[str]:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    if marked:
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
