"""The definitions and results of canaries as text.

Owns: the wording. Must not know: how results are compared, where they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brickd.base import escape, units
from brickd.screens.screen import Screen

_COLOURS = {"equal": "green", "differs": "red", "disagrees": "red", "not compared": "yellow"}
_VERDICTS = {
    "equal": "equal: each worker computed the same as the others of its service",
    "differ": "differ: a worker computed something else",
    "unproven": "unproven: not each worker could be compared",
}


def definitions(document: dict[str, Any], screen: Screen, action: str) -> Iterator[str]:
    """Return a line for each definition."""
    for each in document["canaries"]:
        forced = f", {units.many(each['forced'], 'forced token')}" if each["forced"] else ""
        yield escape.text(f"{each['canary']}: {units.many(each['tokens'], 'token')}{forced}", screen.width)
    if not document["canaries"] and action == "ls":
        yield "no canary is defined (brickd canary add NAME FILE)"


def results(document: dict[str, Any], screen: Screen) -> Iterator[str]:
    """Return the verdict, then a line for each canary in each worker."""
    yield _VERDICTS[document["verdict"]]
    for each in document["results"]:
        line = escape.text(f"{each['worker']}: {each['canary']}: {_told(each)}", screen.width)
        yield screen.paint(line, _COLOURS[each["verdict"]])
    if document["ignored"]:
        yield f"{units.many(document['ignored'], 'answer')} of workers were invalid, or came too late"


def _told(each: dict[str, Any]) -> str:
    if (first := each["first"]) is not None:
        layer = "" if first["layer"] is None else f" (layer {first['layer']})"
        return f"{each['verdict']} first at {first['kernel']}{layer}, in the {_PARTS[first['part']]}"
    if each["why"] is not None:
        return f"{each['verdict']}: {each['why']}"
    spent = (
        f"{each['slices']} slices, {each['spent_s'] * 1e3:.0f} ms in all, the longest {each['longest_s'] * 1e3:.1f} ms"
    )
    return f"equal at {units.many(each['sites'], 'site')} ({spent})"


_PARTS = {"prompt": "prompt", "forced": "forced tokens"}
