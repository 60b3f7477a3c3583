"""The orders that a daemon carries out, the same for the command line and the API.

Owns: the orders and their parameters. Must not know: how an order is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from brickd.base.json_values import flag, listed, require, text, unicode
from brickd.errors import WrongQuestion
from brickd.query.parameters import ByteSize, Choice, Duration, Name, Names, Parameter, Switch, Whole
from brickd.query.query import Query, given
from brickd.shm import sampling

OnOff = Literal["on", "off"]
_ON_OFF = ("on", "off")
_RECORDING = Name("the id of a recording")
_PATTERNS_MAX, _PATTERN_MAX = 64, 256


class StepsParameter(Parameter):
    """The rate of steps with checksums."""

    def __init__(self, help: str, **more: Any) -> None:
        super().__init__(sampling.WANTED, help, **more)

    def takes(self, value: object) -> bool:
        """Whether the value is a rate."""
        return isinstance(value, str) and sampling.rate_of(value) is not None


class Patterns(Names):
    """Any number of patterns of names."""

    def takes(self, value: object) -> bool:
        """Whether the value is a tuple of patterns within the limits."""
        return (
            isinstance(value, tuple)
            and Names.takes(self, value)
            and len(value) <= _PATTERNS_MAX
            and all(len(each) <= _PATTERN_MAX for each in value)
        )


class Setting(Query):
    """Set what the workers of a service record, or the daemon's thresholds. Without options, show the settings."""

    service: str | None = given(Name("the name of a service", metavar="SERVICE", positional=True), default=None)
    spans: OnOff | None = given(
        Choice(_ON_OFF, "Record each span in detail (on), or only totals of spans (off)."), default=None
    )
    recording: OnOff | None = given(
        Choice(_ON_OFF, "Record spans and events (on), or nothing at all (off)."), default=None
    )
    fingerprints: str | None = given(
        StepsParameter(
            "Record checksums in no step (off), in one step of N, or in all steps. With default: restore the rate with"
            " which each worker was started.",
            metavar="off|1/N|all|default",
        ),
        default=None,
    )
    sites: tuple[str, ...] = given(
        Patterns(
            f"up to {_PATTERNS_MAX} patterns of kernels' names, each of at most {_PATTERN_MAX} characters",
            "Record checksums only of kernels whose name matches PATTERN, such as 'layers.*.mlp'. With all: of every"
            " kernel. May be given several times.",
            metavar="PATTERN",
        ), default=()
    )  # fmt: skip

    threshold: tuple[str, ...] = given(
        Names(
            "assignments such as stuck_min=45s",
            "Change a threshold of the daemon's alarms. NAME=default restores its default. A threshold has no SERVICE."
            " May be given several times.",
            metavar="NAME=VALUE",
        ), default=()
    )  # fmt: skip

    def rules(self) -> None:
        """Refuse a combination of values that is invalid."""
        if self.service is None and self.changes:
            raise WrongQuestion("no service is given, expected the name of a service (brickd set SERVICE ...)")
        if self.service is not None and self.threshold:
            raise WrongQuestion(
                f"threshold is given with service {self.service}, expected no service: thresholds belong to the daemon"
                " (brickd set --threshold NAME=VALUE)"
            )

    @property
    def changes(self) -> bool:
        """Whether the order changes a setting of a service."""
        return self.spans is not None or self.recording is not None or self.fingerprints is not None or self.sites != ()


class Forgetting(Query):
    """Forget the totals of dead workers with these names, or of all dead workers if there are no names."""

    names: tuple[str, ...] = given(Names("names of workers or services", key="name", positional=True), default=())
    dry_run: bool = given(Switch("Count the workers, but forget nothing."), default=False)


class Rescanning(Query):
    """Read the weights of workers with these names again, or of all workers if there are no names."""

    names: tuple[str, ...] = given(Names("names of workers or services", key="name", positional=True), default=())


class CanaryRunning(Query):
    """Run canaries in the workers with these names, or in all workers if there are no names."""

    names: tuple[str, ...] = given(Names("names of workers or services", key="name", positional=True), default=())
    canaries: tuple[str, ...] = given(
        Names("names of canaries", "Run only this canary. May be given several times.", key="canary", metavar="NAME"),
        default=(),
    )


class CanaryRoundQuery(Query):
    """The results of the canaries that one order asked for."""

    round: int = given(Whole(1, None, "the number of the order"))


class Silencing(Query):
    """Silence a problem for a time. Without an id, list the silenced problems."""

    id: str | None = given(Name("the id of a problem", metavar="[ID]", positional=True), default=None)
    length: float = given(Duration(1, 31_536_000, "Silence the problem for this time.", key="for"), default=7200.0)
    off: bool = given(Switch("End the silence of the problem."), default=False)

    def rules(self) -> None:
        """Refuse a combination of values that is invalid."""
        if self.off and self.id is None:
            raise WrongQuestion("'off' is given without the id of a silenced problem (brickd silence lists the ids)")


class StartRecording(Query):
    """Record workers."""

    names: tuple[str, ...] = given(
        Names("names of workers or services", "Record only this worker or service. May be given several times.",
              key="workers", metavar="WORKER|SERVICE"), default=()
    )  # fmt: skip
    duration: float | None = given(
        Duration(0.01, 31_536_000, "Stop after this time (default: at Ctrl-C)."), default=None
    )
    until_exit: bool = given(Switch("Stop when all recorded workers have ended."), default=False)
    spans: bool = given(Switch("Make the workers keep each span in detail during the recording."), default=False)
    values: bool = given(
        Switch(
            "Include statistics and sketches of tensors. A person who has the same weights can derive tokens from them."
        ),
        default=False,
    )
    redact: bool = given(
        Switch("Make the file safe to share: it shows only which tensors and requests are equal."), default=False
    )
    max_size: int = given(
        ByteSize(1 << 16, 1 << 40, "Begin a new file when a file reaches this size."), default=1 << 30
    )
    max_age: float | None = given(Duration(1, 31_536_000, "Begin a new file when a file is this old."), default=None)
    files: int = given(Whole(1, 10_000, "Keep only the newest N files.", metavar="N"), default=8)

    def rules(self) -> None:
        """Refuse a combination of values that is invalid."""
        if self.values and self.redact:
            raise WrongQuestion("'values' contradicts 'redact': give one of them")


class EndRecording(Query):
    """End a recording."""

    recording: str = given(_RECORDING)


class RecordedFile(Query):
    """A file of a recording."""

    recording: str = given(_RECORDING)
    number: int = given(Whole(0, None, "The number of the file in the recording."))


class Wish(NamedTuple):
    """The setting of a service's workers; `sites` has patterns of kernels, or is empty for all kernels."""

    spans: bool = False
    off: bool = False
    fingerprints: str = sampling.DEFAULT
    sites: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Any]) -> Wish:
        """Decode the values in a checkpoint. An older checkpoint has only the first two values."""
        spans, off, *more = values
        fingerprints, sites = more or (sampling.DEFAULT, [])
        require(sampling.rate_of(text(fingerprints)) is not None, sampling.WANTED, fingerprints)
        return cls(flag(spans), flag(off), fingerprints, tuple(map(unicode, listed(sites, _PATTERNS_MAX))))

    def document(self) -> dict[str, Any]:
        """Return the parameters of an order for this setting."""
        sites = list(self.sites) or [sampling.ALL]
        return {**settings(spans=self.spans, off=self.off), "fingerprints": self.fingerprints, "sites": sites}

    def text(self) -> str:
        """Describe the setting."""
        return sentence(self.document())


class Obeyed(NamedTuple):
    """The result of an order.

    Attributes:
        wish: the current setting.
        workers: the number of workers.
        deaf: the number of workers that ignore the setting: their older agent records checksums of all steps and sites.
    """

    wish: Wish
    workers: int
    deaf: int = 0


def settings(*, spans: bool, off: bool) -> dict[str, OnOff]:
    """Return the parameters of an order that makes this setting."""
    return {"spans": "on" if spans else "off", "recording": "off" if off else "on"}


def sentence(setting: Mapping[str, Any]) -> str:
    """Describe the setting of a service's workers."""
    switches = f"spans {setting['spans']}, recording {setting['recording']}"
    return f"{switches}, fingerprints {setting['fingerprints']}, sites {', '.join(setting['sites'])}"
