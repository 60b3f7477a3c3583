"""A roofline as a picture: FLOP/s over FLOP/byte, both axes logarithmic.

Owns: the layout. Must not know: how a distance is computed, files. Invariants: Each brick with a position is drawn,
with its figures. Bricks without known figures are counted below the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brickd.base import escape, units
from brickd.cli import svg as drawing
from brickd.cli.svg import Axis
from brickd.screens import peak_words

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT, _MARGIN = 960, 560, 64, 460, 96, 924, 16
_LABELS, _NAMED = 12, 15  # how many decades of an axis, and how many bricks, get a label
_NAME_WIDTH = 32
_RADIUS_MIN, _RADIUS_MAX = 3.0, 12.0
_STYLE = """
.roof{fill:none;stroke:#6e7781;stroke-dasharray:4 4}
.asked{stroke:#1a7f37;stroke-width:2;stroke-dasharray:none}
.place{fill-opacity:.55}
.above{fill:#cf222e}
@media(prefers-color-scheme:dark){
.roof{stroke:#9198a1}
.asked{stroke:#3fb950}
.above{fill:#f85149}
}"""


def svg(document: Mapping[str, Any]) -> str:
    """Draw a document of `brickd.analysis.roofline.roofline`."""
    device, bricks, peak = document["device"], document["bricks"], document["peak_flops_per_second"]
    levels = device["bandwidths"]
    ridges = [peak / level["bytes_per_second"] for level in levels]
    across = Axis.over([*ridges, *(brick["flops_per_byte"] for brick in bricks)], _LEFT, _RIGHT)
    lowest = 10.0**across.first * min(level["bytes_per_second"] for level in levels)
    height = Axis.over([peak, lowest, *(brick["flops_per_second"] for brick in bricks)], _BOTTOM, _TOP)
    title = f"Roofline of {device['name']}, {document['type']}"
    parts = [
        *drawing.opening(title, _WIDTH, _HEIGHT, _STYLE),
        drawing.text(_MARGIN, 28, title, "head"),
        drawing.text(_WIDTH - _MARGIN, 28, _peak(document), "quiet number"),
        *_grid(across, height),
        *_roofs(device, document["level"], peak, across, height),
        *_places(bricks, across, height),
    ]
    captions = (drawing.text(_MARGIN, _BOTTOM + 60 + 18 * i, line, "quiet") for i, line in enumerate(_notes(document)))
    return "\n".join([*parts, *captions, "</svg>", ""])


def _peak(document: Mapping[str, Any]) -> str:
    device, bounded = document["device"], document["peak_bounded"]
    rate = peak_words.at_least(f"{units.count(document['peak_flops_per_second'])}FLOP/s", bounded)
    return f"peak {rate}, {'lower bound' if bounded else device['source']}"


def _grid(across: Axis, height: Axis) -> Iterator[str]:
    for y, decade in _some(height):
        yield f'<path class="line" d="M{_LEFT} {y}H{_RIGHT}"/>'
        yield drawing.text(_LEFT - 8, y + 4, _power(decade), "quiet number")
    for x, decade in _some(across):
        yield f'<path class="line" d="M{x} {_TOP}V{_BOTTOM}"/>'
        yield drawing.text(x, _BOTTOM + 18, _power(decade), "quiet tick")
    yield drawing.text(_LEFT - 8, _TOP - 14, "FLOP/s", "number")
    yield drawing.text((_LEFT + _RIGHT) / 2, _BOTTOM + 36, "FLOP/byte", "tick")


def _some(axis: Axis) -> Sequence[tuple[float, int]]:
    decades = list(axis.decades())
    return decades[:: -(-len(decades) // _LABELS)]


def _power(decade: int) -> str:
    return f"{10.0**decade:g}" if decade < 0 else units.count(10**decade).replace(".0", "")


def _roofs(device: Mapping[str, Any], asked: str, peak: float, across: Axis, height: Axis) -> Iterator[str]:
    for level in device["bandwidths"]:
        rate, evidence = level["bytes_per_second"], device["evidence"].get(level["level"])
        bandwidth = peak_words.at_least(f"{units.count(rate)}B/s", evidence is not None and evidence["lower_bound"])
        begin, ridge = max(10.0**across.first, 10.0**height.first / rate), peak / rate
        points = ((begin, begin * rate), (ridge, peak), (10.0**across.last, peak))
        line = " L".join(f"{across.place(x)} {height.place(y)}" for x, y in points)
        kind = "roof asked" if level["level"] == asked else "roof"
        yield drawing.titled(f'<path class="{kind}" d="M{line}"/>', f"{level['level']} {bandwidth}")
        x, y = across.place(begin) + 6, height.place(begin * rate) - 8
        yield drawing.text(x, y, level["level"], "quiet")


def _places(bricks: Sequence[Mapping[str, Any]], across: Axis, height: Axis) -> Iterator[str]:
    longest = max((brick["total_ns"] for brick in bricks), default=1)
    for number, brick in enumerate(bricks):
        x, y = across.place(brick["flops_per_byte"]), height.place(brick["flops_per_second"])
        radius = round(_RADIUS_MIN + (_RADIUS_MAX - _RADIUS_MIN) * (brick["total_ns"] / longest) ** 0.5, 1)
        kind = "above" if brick["above_roof"] else "ours"
        yield drawing.titled(f'<circle class="place {kind}" cx="{x}" cy="{y}" r="{radius}"/>', _tooltip(brick))
        if number < _NAMED:
            on_the_left = x > (_LEFT + _RIGHT) / 2
            label_x = x - radius - 3 if on_the_left else x + radius + 3
            name = escape.text(brick["name"], _NAME_WIDTH)
            yield drawing.text(round(label_x, 1), y + 4, name, "number" if on_the_left else "")


def _tooltip(brick: Mapping[str, Any]) -> str:
    of_roof = peak_words.at_most(units.percent(brick["of_roof_percent"]), brick["roof_bounded"])
    return (
        f"{brick['name']}: {units.count(brick['flops_per_second'])}FLOP/s, {brick['flops_per_byte']:.3g} FLOP/byte, "
        f"{of_roof} of the roof ({brick['limit']}), {units.duration(brick['total_ns'])}"
    )


def _notes(document: Mapping[str, Any]) -> list[str]:
    lines = ["A circle's area grows with the time in its brick; red circles are above the solid roof."]
    left = [
        units.plural(number, f"brick {why}", f"bricks {why}")
        for number, why in (
            (document["rest"]["bricks"], "left out"),
            (len(document["unknown"]), "unknown: without operations, bytes or time"),
        )
        if number
    ]
    return [*lines, f"Not shown: {'; '.join(left)}."] if left else lines
