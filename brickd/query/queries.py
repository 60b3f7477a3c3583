"""The queries and their parameters, one class per view.

Owns: the parameters of each query, and the texts of reasons. Must not know: how a query is answered.
"""

from __future__ import annotations

import re
from typing import Literal, Protocol, get_args

from brickd.errors import WrongQuestion
from brickd.query.parameters import Choice, Duration, Name, Names, Number, NumberOrDuration, Switch, Time, Whole
from brickd.query.query import ABOUT_WORKERS, AT, DAYS_S, FROM, MINUTE_S, OVER, START, TO, Query, given

By = Literal["worker", "service", "layer"]

BY = Choice(get_args(By), "Show one row for each brick and worker, service or layer.")
CATEGORY = Name("a category", "Show only the bricks of this category.", metavar="NAME")
TOP = Whole(1, None, "Show the first N bricks and the totals of the rest.", metavar="N")

# For each sort order of bricks, the key of the document that it uses.
SORTS = {
    **{each: f"{each}_ns" for each in ("self", "total", "mean", "p50", "p90", "p99", "max")},
    **{each: each for each in ("count", "elements", "bytes", "flops", "name", "spread")},
}


class HasPeriod(Protocol):
    """A query about a period.

    The period has the length `over` and ends now or at `at`, or it goes from `since` to `until`.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The workers and services."""

    @property
    def over(self) -> float | str | None:
        """The length of the period."""

    @property
    def at(self) -> float | None:
        """The end of the period. If no length is given, this is a time within the period."""

    @property
    def since(self) -> float | None:
        """The beginning of the period."""

    @property
    def until(self) -> float | None:
        """The end of the period."""


def is_of_the_day(query: HasPeriod) -> bool:
    """Whether the file of the last day answers a query."""
    long = isinstance(query.over, float | int) and query.over > MINUTE_S
    return long or query.at is not None or query.since is not None


def check_period(query: HasPeriod) -> None:
    """Refuse times that contradict each other."""
    if query.until is not None and query.since is None:
        raise WrongQuestion("'to' is given without 'from': give both, or use 'at'")
    if query.since is not None and (query.at is not None or query.over not in (START, None)):
        other = "over" if query.at is None else "at"
        raise WrongQuestion(f"'from' contradicts '{other}': use 'from' with 'to', or 'at' with 'over'")
    if query.since is not None and query.until is not None and query.until <= query.since:
        raise WrongQuestion(_out_of_order(query.since, query.until))


def _out_of_order(since: float, until: float) -> str:
    from brickd.base.timestamps import rfc3339  # takes 4 ms, which most commands do not need

    began, ended = (rfc3339(int(each * 1_000_000_000)) for each in (since, until))
    meaning = "a time without a date means the last such time that has passed: give a date"
    return f"'from' is {began}, expected a time before 'to' ({ended}); {meaning}"


class BricksQuery(Query):
    """A query for the totals of bricks: parameters select the workers, the bricks and their order."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    sort: str = given(Choice(list(SORTS), "Sort by this figure, the largest first."), default="self")
    by: By | None = given(BY, default=None)
    category: str | None = given(CATEGORY, default=None)
    top: int | None = given(TOP, default=None)
    over: float | str = given(OVER, default=START)
    at: float | None = given(AT, default=None)
    since: float | None = given(FROM, default=None)
    until: float | None = given(TO, default=None)

    def rules(self) -> None:
        """Refuse a combination of values that is invalid."""
        if (self.sort, self.by) == ("spread", "worker"):
            raise WrongQuestion("sort=spread contradicts by=worker: one worker has no spread (give one of them)")
        if self.sort == "spread" and is_of_the_day(self):
            raise WrongQuestion("sort=spread contradicts the period: the last day has no workers (use over=60s)")
        if self.sort == "max" and (self.over != START or is_of_the_day(self)):
            raise WrongQuestion(
                "sort=max contradicts the period: the longest span is known only since the start"
                " (use sort=p99, or over=start)"
            )
        check_period(self)


class CoverageQuery(Query):
    """A query for the coverage of comparisons in some services."""

    names: tuple[str, ...] = given(
        Names("names of services", metavar="[SERVICE]...", key="name", positional=True), default=()
    )


EvidenceName = Literal["weights", "input", "row", "history", "run"]
PROVEN_BY = ("weights", "input", "row", "history")  # the classes of evidence with a verdict for every service
OUTPUTS_BY = ("input", "row", "history")  # the classes that compare the outputs of workers
HASHED = 1 << 40  # larger than any step number of an engine; a larger number is the digest of a text
_ALL = 2**64 - 1
_DIGITS = re.compile(r"[0-9a-fA-F]{16}")
_NUMBER = re.compile(r"-?[0-9]{1,20}")


def step_number(text: str) -> int:
    """Parse a step: a decimal number, sixteen hexadecimal digits, or a text, which is hashed.

    >>> step_number("17"), step_number("0000000000000011"), step_number("-1") == _ALL
    (17, 17, True)
    >>> f"{step_number('req-1'):016x}"
    'fddbeef2b6ce4891'
    """
    if _DIGITS.fullmatch(text):
        return int(text, 16)
    if _NUMBER.fullmatch(text):
        return int(text) & _ALL
    number = 0xCBF29CE484222325  # FNV-1a, as in the agent's `core_number`
    for byte in text.encode(errors="surrogatepass"):
        number = (number ^ byte) * 0x100000001B3 & _ALL
    return number


def step_name(step: int) -> str:
    """Name a step without a text: by its number. The digest of a text is shown in hexadecimal.

    >>> step_name(17), step_name(0xFEDCBA9876543210)
    ('17', 'fedcba9876543210')
    """
    return str(step) if step < HASHED else f"{step:016x}"


def step_text(text: str | None) -> str | None:
    """Return the step if it is a text; None if it is a number, or a text that looks like a number.

    >>> step_text("req-1"), step_text("17"), step_text("0000000000000011"), step_text(None)
    ('req-1', None, None, None)
    """
    return None if text is None or _DIGITS.fullmatch(text) or _NUMBER.fullmatch(text) else text


def step_digits(step: int | str | None) -> str | None:
    """Return a step of a Python program as text for `step_number`, which reads sixteen decimal digits as hexadecimal.

    >>> step_digits(17), step_digits(-1), step_digits("req-1"), step_digits(None)
    ('0000000000000011', 'ffffffffffffffff', 'req-1', None)
    """
    return step if step is None or isinstance(step, str) else f"{step & _ALL:016x}"


class DiffQuery(Query):
    """A query to compare workers: parameters select the workers, the evidence and the period."""

    names: tuple[str, ...] = given(
        Names(
            "names of workers or services, or patterns",
            metavar="[[RECORDING:]WORKER|SERVICE]...",
            key="name",
            positional=True,
        ),
        default=(),
    )
    by: EvidenceName | None = given(
        Choice(
            get_args(EvidenceName),
            "Compare by this evidence: weights (replicas hold the same weights), input (equal inputs give equal"
            " outputs), row (equal input rows give equal output rows), or run (the workers did the same work). Default:"
            " input; if nothing can be compared by input, row; if nothing can be compared by row either, weights.",
        ),
        default=None,
    )
    step: str | None = given(
        Name(
            "a step (a number, or a text that is not empty)",
            "Compare only this step: its number, the 16 hexadecimal digits shown for it, or its text.",
            metavar="STEP",
        ),
        default=None,
    )
    since: float | None = given(
        Duration(0.001, 3_153_600_000, "Compare only what was recorded in the last DURATION."), default=None
    )
    rtol: float | None = given(
        Number(0, 1e6, "With --by run: accept a relative error of at most ERROR.", metavar="ERROR"), default=None
    )


class EventsQuery(Query):
    """A query for logged events: those after the event with a number, or those of a period."""

    since: int | float = given(
        NumberOrDuration(
            0.001, 3_153_600_000, "List only the events after number N, or of the last DURATION.", metavar="N|DURATION"
        ),
        default=0,
    )


class FingerprintsQuery(Query):
    """A query for the fingerprints of some workers in a daemon."""

    uuids: tuple[str, ...] = given(
        Names("workers' uuids", "Return only the fingerprints of these workers.", key="uuid"), default=()
    )


class HangQuery(Query):
    """A query for open spans: parameters select the workers and the time to watch them."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    watch: float = given(Duration(0.01, 3600, "Read the open spans twice, with this time in between."), default=1.0)
    longer: float = given(
        Duration(0, 86400, "Count a span as stuck only if it has been open for at least this time."), default=1.0
    )


class HistoryQuery(Query):
    """A query for the work over the last day: parameters select the workers, the brick and the period."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    brick: str | None = given(Name("a brick", "Count only this brick.", metavar="NAME"), default=None)
    every: float | None = given(
        Duration(10, DAYS_S, "Show one row for each DURATION, which is 10s or more. Default: at most 30 rows."),
        default=None,
    )
    over: float | None = given(
        Duration(
            10,
            DAYS_S,
            "Show the last DURATION, from 10s to 48h. With --at TIME: the DURATION before TIME. Default: 1h.",
        ),
        default=None,
    )
    at: float | None = given(Time("Show the period that ends at TIME. Default: now."), default=None)
    since: float | None = given(FROM, default=None)
    until: float | None = given(TO, default=None)

    def rules(self) -> None:
        """Refuse times that contradict each other."""
        check_period(self)


class InspectQuery(Query):
    """A query for the content of one segment: parameters select the segment and the part of its rings."""

    name: str | None = given(
        Name("the name of a worker or segment", metavar="[WORKER|SEGMENT]", positional=True), default=None
    )
    records: int = given(
        Whole(0, 100_000, "Show the newest N records of each ring.", short="-n", metavar="N"), default=10
    )


class RooflineQuery(Query):
    """A query to compare bricks with the peak performance of a device."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    device: str = given(
        Name(
            "a device",
            "Compare with this device: core, machine, gpu0, or a name that you gave with brickd calibrate --device.",
            metavar="NAME",
        ),
        default="machine",
    )
    type: str = given(
        Name("a type of number", "Use the peak for this type of number, such as float32.", metavar="TYPE"),
        default="float32",
    )
    level: str = given(
        Name("a level", "Use the bandwidth of this level: L1, L2, L3 or memory.", metavar="LEVEL"), default="memory"
    )
    by: By | None = given(BY, default=None)
    category: str | None = given(CATEGORY, default=None)
    top: int | None = given(TOP, default=None)
    over: float | str = given(OVER, default=START)
    at: float | None = given(AT, default=None)
    since: float | None = given(FROM, default=None)
    until: float | None = given(TO, default=None)

    def rules(self) -> None:
        """Refuse times that contradict each other."""
        check_period(self)


class SourceQuery(Query):
    """A query for the text of a source, or for the list of sources if no hash is given."""

    hash: str | None = given(
        Name("the hash of a source, or its first digits", metavar="[HASH]", positional=True), default=None
    )


ACTIVE_FOR = Duration(
    0,
    31_536_000,
    "Show problems whose cause was seen within this time. `brickd events` lists older problems. Default: the daemon's"
    " threshold active_for.",
)


class StatusQuery(Query):
    """A query for the status.

    The default period is the last 60 seconds, or the time since the start if no window exists.
    """

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    over: float | str | None = given(OVER, default=None)
    active_for: float | None = given(ACTIVE_FOR, default=None)
    at: float | None = given(AT, default=None)
    since: float | None = given(FROM, default=None)
    until: float | None = given(TO, default=None)
    against: str | None = given(
        Choice(["yesterday"], "Compare rates and percentiles of each brick with those of 24 hours earlier."),
        default=None,
    )

    def rules(self) -> None:
        """Refuse times that contradict each other."""
        check_period(self)
        if self.active_for is not None and (self.at is not None or self.until is not None):
            other = "at" if self.until is None else "to"
            raise WrongQuestion(f"'active_for' contradicts '{other}': give one of them")
        if self.against is not None and self.over == START and not is_of_the_day(self):
            raise WrongQuestion("against contradicts over=start: totals since the start have no rates (use over=60s)")


class ExportQuery(Query):
    """A query for the spans of a recording: parameters select workers, bricks, a step and the least duration."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    brick: tuple[str, ...] = given(
        Names("names of bricks", "Select only spans of this brick. May be given several times.", metavar="NAME"),
        default=(),
    )
    step: str | None = given(
        Name(
            "a step (a number, or a text that is not empty)",
            "Select only spans of this step: its number, the 16 hexadecimal digits shown for it, or its text.",
            metavar="STEP",
        ),
        default=None,
    )
    longer: float = given(Duration(0, 86400, "Select only spans of at least this duration."), default=0.0)


class SpansQuery(ExportQuery):
    """A query for the longest of these spans; a parameter gives their number."""

    top: int = given(Whole(1, 100_000, "Show the N longest spans.", short="-n", metavar="N"), default=20)


class StepsQuery(Query):
    """A query for an engine's steps in a recording: parameters select the workers and the number of steps."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    newest: int = given(Whole(1, None, "Show only the newest N steps.", metavar="N"), default=100_000)


class StragglersQuery(Query):
    """A query for the stragglers of some services."""

    names: tuple[str, ...] = given(
        Names("names of services", metavar="[SERVICE]...", key="name", positional=True), default=()
    )


class TreeQuery(Query):
    """A query for the call tree: parameters select the workers and the part of the tree."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    layers: bool = given(Switch("Show each layer separately instead of merging bricks over layers."), default=False)
    depth: int | None = given(
        Whole(1, None, "Show N levels of the tree. Only count the nodes on deeper levels.", metavar="N"), default=None
    )
    min: float = given(
        Number(0, 100, "Leave out nodes that took less than PERCENT of the time. Only count them.", metavar="PERCENT"),
        default=0.0,
    )
    over: float | str = given(OVER, default=START)
    at: float | None = given(AT, default=None)
    since: float | None = given(FROM, default=None)
    until: float | None = given(TO, default=None)

    def rules(self) -> None:
        """Refuse times that contradict each other."""
        check_period(self)


class WeightsQuery(Query):
    """A query for weights: parameters select the workers, and whether every tensor is shown."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())
    all: bool = given(Switch("Show every tensor, not only those that differ."), default=False)


class WorkersQuery(Query):
    """A query for some workers."""

    names: tuple[str, ...] = given(ABOUT_WORKERS, default=())


# The reasons why fingerprints of one site are not compared, keyed by the name that the reason has in documents.
REASONS = {
    "dtype": "of another dtype",
    "shape": "of another shape",
    "form": "whose inputs have another dtype or shape",
    "backend": "of another backend",
    "params": "with other params, or with weights of another generation",
    "valid": "with another number of valid rows",
    "relation": "with another relation",
    "repeats": "that ran a different number of times in the workers",
    "unsteady": "where most workers contradict themselves",
    "work": "of another step's work",
    "values": "recorded without values (record --values)",
    "stateful": "of stateful kernels (stateful=False if the inputs decide the output)",
    "shard": "of another shard",
    "lost": "that lost records may explain",
    "range": "of numbers too large for a sketch",
}
