"""What Python programs ask: `brickd.live` and `brickd.open`.

Owns: the methods, and which query each of them asks. Must not know: how a query is answered, screens. Invariant: Every
figure is from the document that the command line shows for the same query.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brickd.client import client
from brickd.query.queries import BricksQuery, By, WorkersQuery
from brickd.query.query import OVER, START, Query
from brickd.results.schema import BRICKS, WORKERS, Schema
from brickd.results.table import Table
from brickd.views import fetch_answer


@dataclass(frozen=True, slots=True)
class Profile:
    """The workers of this machine, or those of a recording.

    Each call of a method asks anew: a daemon if one runs, else the shared memory of the workers; or it reads the files
    of the recording.

    Attributes:
        recordings: the files of a recording; empty: the live workers of this machine.
    """

    recordings: tuple[str, ...] = ()

    @classmethod
    def of_recording(cls, paths: tuple[str | os.PathLike[str], ...]) -> Profile:
        """Return the profile in the files of one recording.

        Raises:
            brickd.errors.RecordingRefused: a file is no recording.
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
    ) -> Table:
        """Return the totals of every brick, as `brickd bricks` does.

        Args:
            names: names of workers and services; without a name, all workers.
            sort: the figure to sort by, as on the command line.
            by: "worker", "service" or "layer": a row for each of them.
            category: only the bricks of this category.
            top: only the first bricks; `document["rest"]` counts the others.
            over: the last seconds to count, 10 to 60, as a number or as text ("30s"); "start" for everything.

        Raises:
            brickd.errors.NoDaemon: `over` is a time, and no daemon runs.
            brickd.errors.WrongQuestion: a parameter has a wrong value.
        """
        query = BricksQuery(names, sort, by, category, top, _period(over))
        return self._table(BRICKS.grouped(by), "bricks", query)

    def _table(self, schema: Schema, view: str, query: Query) -> Table:
        answer = fetch_answer.find(view, query, recordings=self.recordings)
        return _made(schema, answer.document, answer.words)


def _made(schema: Schema, document: Mapping[str, Any], words: tuple[str, ...]) -> Table:
    """Make a table. BrickdError: the document is from a daemon of another version."""
    try:
        return Table(schema, document, words)
    except KeyError as error:
        raise client.unlike(error) or error from error


def _period(over: float | str) -> float | str:
    parsed: float | str = OVER.read(over) if isinstance(over, str) else over
    return parsed
