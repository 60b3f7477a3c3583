"""The parts that every picture has: background, colours, text, logarithmic axes. A picture is one SVG file.

No plotting library is used. It would be a large dependency for a few rectangles and lines, and its output would be many
times longer.

Owns: the colours and the background, which follow the reader's light or dark mode; how text becomes part of a picture;
the position of a value on a logarithmic axis. Must not know: what a picture shows. Invariant: any name is shown as
plain text in the picture.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from brickd.base import escape

_STYLE = """\
text{font:12px system-ui,sans-serif;fill:#1f2328}
.head{font-size:15px;font-weight:600}
.quiet{fill:#59636e}
.number{text-anchor:end}
.tick{text-anchor:middle}
.ground{fill:#fff;stroke:#d1d9e0}
.line{stroke:#d1d9e0}
.ours{fill:#1a7f37}
.other{fill:#6e7781}
@media(prefers-color-scheme:dark){
text{fill:#f0f6fc}
.quiet{fill:#9198a1}
.ground{fill:#0d1117;stroke:#3d444d}
.line{stroke:#3d444d}
.ours{fill:#3fb950}
.other{fill:#9198a1}
}"""


def opening(title: str, width: int, height: int, style: str = "") -> list[str]:
    """Return the head and the background of a picture; the caller adds the end, "</svg>"."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{_safe(title)}</title>",
        f"<style>{_STYLE}{style}</style>",
        f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
    ]


def text(x: float, y: float, content: str, kind: str = "") -> str:
    """Return a line of text as SVG."""
    return f'<text x="{x}" y="{y}"' + (f' class="{kind}"' if kind else "") + f">{_safe(content)}</text>"


def titled(shape: str, content: str) -> str:
    """Return a shape with a tooltip."""
    return f"<g><title>{_safe(content)}</title>{shape}</g>"


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis, which shows the decades from `first` to `last` between two positions."""

    first: int
    last: int
    begin: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> Axis:
        """Return an axis with room for all these values, which must be above 0."""
        first = math.floor(math.log10(min(values)))
        return cls(first, max(first + 1, math.ceil(math.log10(max(values)))), begin, end)

    def place(self, value: float) -> float:
        """Return the position of a value."""
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return round(self.begin + (self.end - self.begin) * share, 1)

    def decades(self) -> Iterator[tuple[float, int]]:
        """Return the position and the exponent of each power of ten."""
        for decade in range(self.first, self.last + 1):
            yield self.place(10.0**decade), decade


def _safe(content: str) -> str:
    return html.escape(escape.text(content))
