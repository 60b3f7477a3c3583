"""Rooflines: how close bricks come to the limits of a device.

Owns: the position of a brick below a roof, the schema of the document. Must not know: where peaks and bricks come from,
screens. Invariants: A brick whose operations or bytes are unknown has no position. Bricks above the roof are counted,
including those that `top` omits. A roof that is only a lower bound is marked. The distance is 1 - min(achieved /
min(peak, intensity x bandwidth), 1).

The user's process combines peaks and bricks. The daemon cannot, because the peaks are in the user's state directory. A
daemon that runs as a service has a private state directory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brickd.analysis.roofline.peaks import ANY, Bandwidth, Device
from brickd.base.processors import Machine
from brickd.errors import BrickdError
from brickd.query.queries import RooflineQuery

COMPUTE = "compute"
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Roof:
    """The limits of a device for bytes that come from `level`; `bandwidths` has the nearest level first.

    Attributes:
        bounds: the limits (COMPUTE, names of levels) whose rates are only lower bounds.
    """

    peak: float
    bandwidths: tuple[Bandwidth, ...]
    level: str
    bounds: frozenset[str] = frozenset()

    def at(self, flops_per_byte: float, level: str | None = None) -> tuple[float, str]:
        """Return the FLOP/s that the roof allows at this intensity, and what limits them: COMPUTE or a level."""
        level = level or self.level
        (rate,) = (each.bytes_per_second for each in self.bandwidths if each.level == level)
        return min((self.peak, COMPUTE), (flops_per_byte * rate, level), key=lambda each: each[0])


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """The position of a brick below a roof, or above it.

    Attributes:
        limit: what limits the roof at this intensity: COMPUTE or a level.
        served_by: the farthest level that is fast enough for the brick's bytes; None if no level is.
    """

    flops_per_second: float
    flops_per_byte: float
    roof_flops_per_second: float
    limit: str
    served_by: str | None

    @property
    def share(self) -> float:
        """The achieved fraction of the roof; above 1 if the brick is above the roof."""
        return self.flops_per_second / self.roof_flops_per_second

    @property
    def above(self) -> bool:
        """Whether the brick is above the roof."""
        return self.flops_per_second > self.roof_flops_per_second

    @property
    def distance(self) -> float:
        """The fraction of the roof that was not achieved."""
        return 1 - min(self.share, 1)

    def document(self, roof: Roof) -> dict[str, Any]:
        """The position as JSON."""
        return {
            "flops_per_second": _figures(self.flops_per_second),
            "flops_per_byte": _figures(self.flops_per_byte),
            "roof_flops_per_second": _figures(self.roof_flops_per_second),
            "limit": self.limit,
            "roof_bounded": self.limit in roof.bounds,
            "of_roof_percent": _figures(100 * self.share),
            "of_peak_percent": _figures(100 * (self.flops_per_second / roof.peak)),
            "distance_percent": _figures(100 * self.distance),
            "above_roof": self.above,
            "served_by": self.served_by,
        }


def place(roof: Roof, flops: float, size_bytes: float, time_ns: float) -> RooflinePoint:
    """Return the position of a brick with these totals; each total is at least 1."""
    achieved, intensity = flops / time_ns * 1e9, flops / size_bytes
    allowed, limit = roof.at(intensity)
    farthest_first = (each.level for each in reversed(roof.bandwidths))
    served_by = next((level for level in farthest_first if achieved <= roof.at(intensity, level)[0]), None)
    return RooflinePoint(achieved, intensity, allowed, limit, served_by)


def chosen(devices: Sequence[Device], query: RooflineQuery) -> Device:
    """Return the device of the query; raise a BrickdError if it has no known peaks."""
    for device in devices:
        if device.name == query.device:
            return device
    known = ", ".join(each.name for each in devices) or "none"
    raise BrickdError(
        f"no peaks of device {query.device}, only of {known}: measure them (brickd calibrate), or give them"
        " (brickd calibrate --device NAME --peak-flops N --bandwidth N)"
        if devices
        else "no peaks are saved: measure those of this machine (brickd calibrate)"
    )


def roof_of(device: Device, query: RooflineQuery) -> Roof:
    """Return the roof of the query; raise a BrickdError if its peak or its bandwidth is unknown."""
    kind = query.type if query.type in device.flops_per_second else ANY
    if kind not in device.flops_per_second:
        raise BrickdError(_unknown(device, "--type", query.type, device.flops_per_second))
    levels = [each.level for each in device.bandwidths]
    if query.level not in levels:
        raise BrickdError(_unknown(device, "--level", query.level, levels))
    bounds = {level for level in levels if device.is_bound(level)} | ({COMPUTE} if device.is_bound(kind) else set())
    return Roof(device.flops_per_second[kind], device.bandwidths, query.level, frozenset(bounds))


def _unknown(device: Device, option: str, value: str, known: Iterable[str]) -> str:
    why = "".join(f" (not measured: {each.why})" for each in device.skipped if each.what == value)
    expected = ", ".join(known) or "nothing: measure again (brickd calibrate)"
    return f"{option} is {value}{why}, expected one that device {device.name} has: {expected}"


def document(bricks: Document, device: Device, query: RooflineQuery, here: Machine) -> dict[str, Any]:
    """Return the document: each brick of the view `bricks`, with its position relative to the roof."""
    roof = roof_of(device, query)
    placed, unknown = [], []
    for brick in bricks["bricks"]:
        missing = [key for key in ("flops", "bytes", "total_ns") if not 1 <= brick[key] < math.inf]
        kept = {key: brick[key] for key in ("name", "category", *([query.by] if query.by else []))}
        kept |= {key: brick[key] for key in ("count", "total_ns", "self_ns", "flops", "bytes", "bounded")}
        if missing:
            unknown.append({**kept, "missing": missing})
        else:
            where = place(roof, brick["flops"], brick["bytes"], brick["total_ns"])
            gain_ns = round(brick["total_ns"] * where.distance)
            placed.append({**kept, **where.document(roof), "to_gain_ns": gain_ns})
    placed.sort(key=lambda entry: -entry["to_gain_ns"])
    top = len(placed) if query.top is None else query.top
    begun = {key: bricks[key] for key in ("schema_version", "source", "recording", "over", "over_ns") if key in bricks}
    return {
        **begun,
        "by": query.by,
        "category": query.category,
        "workers": bricks["workers"],
        "device": device.document(),
        "device_is_here": None if device.machine is None else device.machine == here,
        "type": query.type,
        "level": query.level,
        "peak_flops_per_second": roof.peak,
        "peak_bounded": COMPUTE in roof.bounds,
        "above": _above(placed, roof),
        "bricks": placed[:top],
        "rest": {
            "bricks": len(placed[top:]),
            "to_gain_ns": sum(entry["to_gain_ns"] for entry in placed[top:]),
            "above_roof": sum(entry["above_roof"] for entry in placed[top:]),
            "roof_bounded": any(entry["roof_bounded"] for entry in placed[top:]),
        },
        "unknown": unknown,
    }


def _above(placed: Iterable[Mapping[str, Any]], roof: Roof) -> dict[str, Any]:
    above = [entry for entry in placed if entry["above_roof"]]
    over = [entry for entry in above if entry["flops_per_second"] > roof.peak]
    levels = Counter(entry["served_by"] for entry in above if entry["served_by"] is not None)
    return {
        "peak": len(over),
        "most_of_peak_percent": max((entry["of_peak_percent"] for entry in over), default=None),
        "every_roof": len(above) - len(over) - levels.total(),
        "served_by": dict(levels),
    }


def _figures(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")
