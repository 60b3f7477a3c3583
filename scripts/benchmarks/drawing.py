"""What every picture has: a ground, colours, text, as SVG that stands alone.

Written by hand: a plotting library is a large dependency for a few rectangles and lines, and its output many times as
long. The colours follow the reader's light or dark mode, on a ground of their own. Nothing here knows what is shown.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from brickd import escape

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
    """The head and the ground; the end, "</svg>", is left to the caller."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{_safe(title)}</title>",
        f"<style>{_STYLE}{style}</style>",
        f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
    ]


def text(x: float, y: float, said: str, kind: str = "") -> str:
    """A line of it."""
    return f'<text x="{x}" y="{y}"' + (f' class="{kind}"' if kind else "") + f">{_safe(said)}</text>"


def machine(facts: Mapping[str, object]) -> str:
    """Where it was measured, in a line."""
    return f"{facts['cpu_model']}, {facts['cpus']} processors; Python {facts['python']}, Linux {facts['kernel']}."


def _safe(said: str) -> str:
    return html.escape(escape.text(said))
