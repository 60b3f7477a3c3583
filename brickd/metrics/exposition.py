"""Series as text for Prometheus, in its format 0.0.4.

Owns: the escapes, the order of families. Must not know: what a series means. Invariants: The text is valid UTF-8, and
each series is one line, whatever characters a worker put into its names. A family without series has no lines.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import defaultdict

from brickd.base import escape
from brickd.metrics.families import FAMILIES, Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def label(value: str) -> str:
    r"""Return a name as the value of a label: with only visible characters, and without the quotes around it.

    >>> print(label('a"b\n'), label("moe\udc80"))
    a\"b\\n moe\\udc80
    """
    return escape.text(value).replace("\\", r"\\").replace('"', r"\"")


def series(name: str, **labels: str) -> str:
    """Return a line without its value. The values of labels must be results of `label`.

    >>> series("brickd_workers", service="api", state="live"), series("up")
    ('brickd_workers{service="api",state="live"} ', 'up ')
    """
    inside = ",".join([f'{key}="{value}"' for key, value in labels.items()])
    return f"{name}{{{inside}}} " if inside else f"{name} "


class Exposition:
    """The lines of one page, grouped by family."""

    def __init__(self) -> None:
        self.lines: dict[Family, list[str]] = defaultdict(list)

    def add(self, family: Family, value: float, *labels: str) -> None:
        """Add a series to a counter or a gauge. The labels must be in the order in which the family declares them."""
        head = series(family.name, **dict(zip(family.labels, labels, strict=True)))
        self.lines[family].append(f"{head}{value!r}\n")

    def text(self) -> bytes:
        """Return the page."""
        parts: list[str] = []
        for family in FAMILIES:
            if lines := self.lines.get(family):
                parts.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n")
                parts += lines
        return "".join(parts).encode()
