"""Peaks: the most that a device computes and reads per second.

Owns: the properties of a device, and which rates are only lower bounds. Must not know: methods of measurement, files,
bricks, screens. Invariants: Values given by the user are never shown as measured. A rate that undisturbed rounds do not
confirm is a lower bound. A lower rate never replaces a higher rate of the same device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from brickd.base.processors import Machine

MEMORY = "memory"
# The key of a peak for which the user gave no type of number.
ANY = "any"

# Every rate of a device must be between these limits, so that sums and quotients of rates are finite.
_LEAST, _MOST = 1.0, 1e30

# If other work uses at least this many processors on average, shared memory and clock rates may be slower. With less
# other work, at least half of the rounds are undisturbed, and the best round counts. The limit is a number of
# processors and not a share of the machine, because 5 % of 128 processors would be six busy processors.
_BUSY_PROCESSORS = 0.5
# Rates of undisturbed rounds differ by less than this factor.
_SAME = 0.98
# A rate needs this many undisturbed rounds, because caches are empty after an interruption. In one measurement, the
# best of 5 rounds reached 26 GB/s, and the best of 29 rounds reached 41 GB/s.
UNDISTURBED_MIN = 20

Source = Literal["measured", "given"]


class Bandwidth(NamedTuple):
    """The bandwidth of a level of memory: "L1", another cache, or MEMORY."""

    level: str
    bytes_per_second: float
    working_set_bytes: int | None = None


class Skipped(NamedTuple):
    """A measurement that was skipped, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The rounds of a measurement; the rate of the best round is the measured rate.

    Attributes:
        at: when the best round was measured, in RFC 3339.
        others_processors: the mean number of processors that other work used; None if unknown.
        rounds: the number of rounds; 0 if an earlier version of brickd, which stored no evidence, measured the rate.
        undisturbed_rounds: the number of rounds in which the measurement lost no time to other work.
        undisturbed_per_second: the best rate of the undisturbed rounds; None if there are none.
        disturbed_by: the number of disturbed rounds for each kind of disturbance.
    """

    at: str
    others_processors: float | None
    rounds: int = 0
    undisturbed_rounds: int = 0
    undisturbed_per_second: float | None = None
    disturbed_by: Mapping[str, int] = field(default_factory=dict)

    @property
    def under_load(self) -> bool:
        """Whether other work used enough processors to slow the measurement."""
        return self.others_processors is not None and self.others_processors >= _BUSY_PROCESSORS

    def confirms(self, per_second: float) -> bool:
        """Whether there are enough undisturbed rounds and at least one of them reached this rate."""
        if self.undisturbed_per_second is None or self.undisturbed_rounds < UNDISTURBED_MIN:
            return False
        return self.undisturbed_per_second >= _SAME * per_second

    def with_rounds_of(self, other: Evidence) -> Evidence:
        """Return this evidence with the rounds of `other` added."""
        reached = [each.undisturbed_per_second for each in (self, other) if each.undisturbed_per_second is not None]
        return replace(
            self,
            rounds=self.rounds + other.rounds,
            undisturbed_rounds=self.undisturbed_rounds + other.undisturbed_rounds,
            undisturbed_per_second=max(reached, default=None),
            disturbed_by=dict(Counter(self.disturbed_by) + Counter(other.disturbed_by)),
        )


@dataclass(frozen=True, slots=True)
class Device:
    """A device with its peaks.

    Attributes:
        at: the time of the last measurement, in RFC 3339.
        by: the GPU's name, or the processors' instruction sets; None if the user gave the peaks.
        machine: the machine that was measured; None if the user gave the peaks.
        flops_per_second: the rates, keyed by type of number.
        bandwidths: the rates, keyed by memory level; the level nearest to the processor comes first.
        evidence: how each rate was measured, keyed by type of number or by memory level.
    """

    name: str
    source: Source
    at: str
    by: str | None
    machine: Machine | None
    flops_per_second: Mapping[str, float]
    bandwidths: tuple[Bandwidth, ...]
    skipped: tuple[Skipped, ...] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def rates(self) -> dict[str, float]:
        """Return every rate, keyed by type of number or by level."""
        return {**self.flops_per_second, **{each.level: each.bytes_per_second for each in self.bandwidths}}

    @property
    def others_processors(self) -> float | None:
        """The largest mean number of processors that other work used during a measurement; None if unknown."""
        known = (each.others_processors for each in self.evidence.values())
        return max((each for each in known if each is not None), default=None)

    @property
    def under_load(self) -> bool:
        """Whether other work ran during any measurement of the device."""
        return any(each.under_load for each in self.evidence.values())

    def is_bound(self, of: str) -> bool:
        """Whether a rate is only a lower bound: measured, but not confirmed by undisturbed rounds."""
        return self.source == "measured" and not self.evidence[of].confirms(self.rates[of])

    def document(self) -> dict[str, Any]:
        """Return the device as JSON, as it is written to the file of peaks."""
        return {
            "name": self.name,
            "source": self.source,
            "at": self.at,
            "by": self.by,
            "machine": None if self.machine is None else asdict(self.machine),
            "others_processors": self.others_processors,
            "beside_others": self.under_load,
            "flops_per_second": dict(self.flops_per_second),
            "bandwidths": [each._asdict() for each in self.bandwidths],
            "skipped": [each._asdict() for each in self.skipped],
            "evidence": {
                of: asdict(each) | {"under_load": each.under_load, "lower_bound": self.is_bound(of)}
                for of, each in self.evidence.items()
            },
        }


class Kept(NamedTuple):
    """An earlier rate that is kept because it is higher than the new one."""

    device: str
    of: str
    kept_per_second: float
    measured_per_second: float | None
    kept_at: str


def merged(measured: Iterable[Device], known: Iterable[Device]) -> tuple[tuple[Device, ...], list[Kept]]:
    """Merge new devices with the known ones. Return all devices, and the earlier rates that are kept.

    A measured device keeps higher rates of the same device. If any device was measured, other measured devices are
    dropped, because they are no longer there or belong to another machine. A device that the user gave replaces a
    device with the same name.
    """
    found, kept = [], []
    measured, known = tuple(measured), tuple(known)
    for device in measured:
        before = next((each for each in known if _identity(each) == _identity(device)), None)
        pooled, higher = (device, []) if before is None else _pooled(device, before)
        found.append(pooled)
        kept += higher
    names = {each.name for each in found}
    anew = any(each.source == "measured" for each in found)
    others = (each for each in known if each.name not in names and not (anew and each.source == "measured"))
    return (*found, *others), kept


def _identity(device: Device) -> tuple[object, ...]:
    if device.source == "given":
        return (id(device),)
    gpu = None if device.name in ("core", "machine") else device.by
    return device.name, device.machine, gpu


def _pooled(device: Device, before: Device) -> tuple[Device, list[Kept]]:
    flops, evidence = dict(device.flops_per_second), dict(device.evidence)
    bandwidths = {each.level: each for each in device.bandwidths}
    levels = {each.level: each for each in before.bandwidths}
    kept = []
    for of, rate_before in before.rates.items():
        now, then = device.rates.get(of), before.evidence[of]
        if now is not None and now >= rate_before:
            evidence[of] = evidence[of].with_rounds_of(then)
            continue
        kept.append(Kept(device.name, of, rate_before, now, then.at))
        evidence[of] = then if now is None else then.with_rounds_of(evidence[of])
        if of in levels:
            bandwidths[of] = levels[of]
        else:
            flops[of] = rate_before
    skipped = tuple(each for each in device.skipped if each.what not in evidence)
    ordered = tuple(bandwidths[level] for level in sorted(bandwidths))  # "L1" < "L2" < "memory"
    return replace(device, flops_per_second=flops, bandwidths=ordered, skipped=skipped, evidence=evidence), kept


def rate(value: object) -> float:
    """Return this rate. Raise a ValueError if it is not a number, or if no device can have it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST <= value <= _MOST:
        raise ValueError(f"rate is {str(value)[:60]}, expected a number from 1 to 1e30")
    return float(value)
