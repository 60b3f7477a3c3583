"""The interface for Python programs: `brickd.live` and `brickd.open`.

Owns: the methods, and which query each of them asks. Must not know: how a query is answered, screens. Invariant: Every
figure is from the document that the command line shows for the same query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brickd.client import client
from brickd.errors import WrongQuestion
from brickd.query.parameters import Parameter
from brickd.query.queries import (
    BricksQuery,
    By,
    EvidenceName,
    FingerprintsQuery,
    HistoryQuery,
    SpansQuery,
    StatusQuery,
    StepsQuery,
    TreeQuery,
    WorkersQuery,
    step_digits,
)  # fmt: skip
from brickd.query.query import AT, FROM, OVER, START, TO, Query
from brickd.results.schema import BRICKS, FINGERPRINTS, HISTORY, PROBLEMS, SPANS, STEPS, TREE, WORKERS, Schema
from brickd.results.table import Table
from brickd.views import fetch_answer

if TYPE_CHECKING:
    from brickd.divergence import Divergence
    from brickd.recording.chunks import Form
    from brickd.views.common import Document

_RECORDED_SECONDS = 1.0  # how long live workers are recorded for their spans
_EXPORT_SECONDS = 30.0  # how long a daemon may take to send all fingerprints
_ASKED_MAX = 100  # with more workers than this, ask for all of them instead of a list of uuids


@dataclass(frozen=True, slots=True)
class Profile:
    """The workers of this machine, or those of a recording.

    Each call of a method gets new data: from a daemon if one runs, else from the shared memory of the workers. For a
    recording, the call reads its files.

    Attributes:
        recordings: the files of a recording; empty: the live workers of this machine.
    """

    recordings: tuple[str, ...] = ()

    @classmethod
    def of_recording(cls, paths: tuple[str | os.PathLike[str], ...]) -> Profile:
        """Return the profile in the files of one recording.

        Raises:
            brickd.errors.RecordingRefused: a file is not a recording.
            brickd.errors.NotPermitted: this user may not read a file.
        """
        from brickd.recording.chunks import open_recording

        names = tuple(os.fspath(path) for path in paths)
        for name in names:
            open_recording(name).close()
        return cls(names)

    def workers(self, *names: str) -> Table:
        """Return every worker, with its ledger.

        Args:
            names: names of workers and services; without a name, all workers.
        """
        return self._table(WORKERS, "workers", WorkersQuery(names))

    def bricks(
        self,
        *names: str,
        sort: str = "self",
        by: By | None = None,
        category: str | None = None,
        top: int | None = None,
        over: float | str = START,
        at: float | str | None = None,
        since: float | str | None = None,
        until: float | str | None = None,
    ) -> Table:
        """Return the totals of every brick, as `brickd bricks` does.

        Args:
            names: names of workers and services; without a name, all workers.
            sort: the figure to sort by, as on the command line.
            by: "worker", "service" or "layer": each brick has a row for each of these.
            category: only the bricks of this category.
            top: only the first bricks; `document["rest"]` counts the others.
            over: the last seconds to count, as a number or as text ("30s", "15m"), at most 48 hours; "start" for
                everything.
            at: the end of `over`, or a time in the slot to count: seconds since 1970, or text ("02:47").
            since: the begin of the period, in the same form.
            until: the end of the period; without it, now.

        Raises:
            brickd.errors.NoDaemon: a period is given, and no daemon runs.
            brickd.errors.WrongQuestion: a parameter has a wrong value.
        """
        query = BricksQuery(names, sort, by, category, top, *_period(over, at, since, until))
        return self._table(BRICKS.grouped(by), "bricks", query)

    def tree(
        self,
        *names: str,
        layers: bool = False,
        depth: int | None = None,
        min: float = 0.0,
        over: float | str = START,
        at: float | str | None = None,
        since: float | str | None = None,
        until: float | str | None = None,
    ) -> Table:
        """Return the call tree, each node before the nodes below it, as `brickd tree` does.

        Args:
            names: names of workers and services; without a name, all workers.
            layers: whether each layer is separate.
            depth: the number of levels.
            min: the least share of the time of a node, in percent.
            over: the last seconds to count, as in `bricks`.
            at: as in `bricks`.
            since: as in `bricks`.
            until: as in `bricks`.

        Raises:
            brickd.errors.NoDaemon: a period is given, and no daemon runs.
            brickd.errors.WrongQuestion: a parameter has a wrong value.
        """
        query = TreeQuery(names, layers, depth, min, *_period(over, at, since, until))
        return self._table(TREE, "tree", query)

    def history(
        self,
        *names: str,
        brick: str | None = None,
        every: float | str | None = None,
        over: float | str | None = None,
        at: float | str | None = None,
        since: float | str | None = None,
        until: float | str | None = None,
    ) -> Table:
        """Return the work over the last day, a row for each period, as `brickd history` does.

        Args:
            names: names of workers and services, which are added up; without a name, all workers.
            brick: only this brick.
            every: the length of a row in seconds, or as text ("5m"); None: at most 30 rows.
            over: the last seconds, as in `bricks`; None: an hour.
            at: the end of `over`, as in `bricks`.
            since: as in `bricks`.
            until: as in `bricks`.

        Raises:
            brickd.errors.NoDaemon: no daemon runs.
            brickd.errors.WrongQuestion: a parameter has a wrong value.
        """
        query = HistoryQuery(names, brick, _read(OVER, every), *_period(over, at, since, until))
        return self._table(HISTORY, "history", query)

    def spans(
        self,
        *names: str,
        brick: tuple[str, ...] = (),
        step: int | str | None = None,
        longer: float = 0.0,
        top: int = 1000,
        seconds: float | None = None,
    ) -> Table:
        """Return the longest single spans, the longest first, as `brickd spans` does.

        Live workers keep no single spans. So a live profile first records the spans of the next seconds, which costs
        the workers some time, and returns the longest of these.

        Args:
            names: names of workers and services; without a name, all workers.
            brick: only the spans of these bricks.
            step: only the spans of this step.
            longer: only spans of at least this duration, in seconds.
            top: the number of spans, at most 100,000; `document["spans_total"]` counts all.
            seconds: how long to record live workers; None: a second.

        Raises:
            brickd.errors.BrickdError: nothing can be recorded, for instance because another recording runs.
            brickd.errors.WrongQuestion: a parameter has a wrong value, or `seconds` is given for a recording.
        """
        from brickd.export import longest_spans

        query = SpansQuery(names, brick, step_digits(step), longer, top)
        return self._of_spans(SPANS, names, seconds, lambda forms: longest_spans.find(forms, query))

    def steps(self, *names: str, newest: int = 100_000, seconds: float | None = None) -> Table:
        """Return the steps of the engine, in the order of their beginnings.

        Args:
            names: names of workers and services; without a name, all workers.
            newest: the largest number of steps; `document["steps_total"]` counts all.
            seconds: as in `spans`.

        Raises:
            brickd.errors.BrickdError: as in `spans`.
            brickd.errors.WrongQuestion: as in `spans`.
        """
        from brickd.export import recorded_steps

        query = StepsQuery(names, newest)
        return self._of_spans(STEPS, names, seconds, lambda forms: recorded_steps.find(forms, query))

    def problems(self, *names: str, active_for: float | None = None) -> Table:
        """Return the active problems, the worst first, as `brickd status` lists them.

        Args:
            names: names of workers and services; without a name, all problems.
            active_for: only problems whose cause was seen in this time, in seconds; None: the daemon's threshold.
        """
        return self._table(PROBLEMS, "status", StatusQuery(names, START, active_for))

    def fingerprints(self, *names: str) -> Table:
        """Return the fingerprints of tensors that are in the memory of the daemon, in the rings, or in the recording.

        Args:
            names: names of workers and services; without a name, all workers.

        Raises:
            brickd.errors.NoSuchWorker: no worker and no service has one of the names.
        """
        from brickd.results import fingerprints

        workers = {row["uuid"]: row["name"] for row in self.workers(*names) if row["uuid"] is not None}
        some = tuple(workers) if names and len(workers) <= _ASKED_MAX else ()
        query = FingerprintsQuery(some)
        export = fetch_answer.find("fingerprints", query, recordings=self.recordings, seconds=_EXPORT_SECONDS)
        return _made(FINGERPRINTS, fingerprints.document(export.document, workers), export.words)

    def diff(
        self,
        *names: str,
        by: EvidenceName | None = None,
        step: int | str | None = None,
        since: float | None = None,
        rtol: float | None = None,
    ) -> Divergence:
        """Compare the numbers of two or more workers, as `brickd.diff` does.

        Args:
            names: names of workers and services; the values of the first worker are the expected ones. Without a name,
                all workers.
            by: weights, input, row, or run (they did the same work); None: the strongest evidence there is.
            step: compare only this step.
            since: compare only the records of the last `since` seconds.
            rtol: the largest accepted relative error, for a comparison by run.

        Raises:
            brickd.errors.NothingComparable: the workers have nothing in common to compare.
        """
        from brickd.divergence import found

        return found(names, by=by, step=step, since=since, rtol=rtol, recordings=self.recordings)

    def _of_spans(
        self,
        schema: Schema,
        names: tuple[str, ...],
        seconds: float | None,
        find: Callable[[Sequence[Form]], tuple[Document, tuple[str, ...]]],
    ) -> Table:
        from brickd.recording.replay import opened_files
        from brickd.recording.short_recording import short_recording

        if self.recordings and seconds is not None:
            raise WrongQuestion(f"seconds is {seconds}, expected none: a recording already has its spans")
        if not self.recordings:
            self.workers(*names)  # raises an error if a name is unknown
            with short_recording(names, _RECORDED_SECONDS if seconds is None else seconds) as forms:
                return Table(schema, *find(forms))
        with opened_files(self.recordings) as forms:
            return Table(schema, *find(forms))

    def _table(self, schema: Schema, view: str, query: Query) -> Table:
        answer = fetch_answer.find(view, query, recordings=self.recordings)
        return _made(schema, answer.document, answer.words)


def _made(schema: Schema, document: Mapping[str, Any], words: tuple[str, ...]) -> Table:
    """Make a table. BrickdError: the document is from a daemon of another version."""
    try:
        return Table(schema, document, words)
    except KeyError as error:
        raise client.unlike(error) or error from error


def _period(*values: float | str | None) -> tuple[Any, ...]:
    """Return the length, `at`, the begin and the end of a period as values of a query."""
    return tuple(_read(parameter, value) for parameter, value in zip((OVER, AT, FROM, TO), values, strict=True))


def _read(parameter: Parameter, value: float | str | None) -> Any:
    return parameter.read(value) if isinstance(value, str) else value
