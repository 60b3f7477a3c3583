"""The page of metrics in a file, for node_exporter.

Owns: when the file is written and removed, the report of failures. Must not know: what the page contains. Invariants: A
reader finds a complete page or no file. After a failure, the last page stays, and node_exporter shows its age. The
failure is counted. It is logged once, and not again until the file can be written again.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from brickd.base.state_file import replace
from brickd.metrics.page import MetricsPage
from brickd.model.event_log import LogEvent
from brickd.model.survey_snapshot import Snapshot

_MODE = 0o644  # node_exporter is another user


class Textfile:
    """Takes snapshots, and writes a page for each.

    Attributes:
        trouble: why the last page could not be written; None if it was written.
    """

    def __init__(self, path: Path, page: MetricsPage, log_event: LogEvent) -> None:
        self._path, self._page, self._log_event = path, page, log_event
        self.trouble: str | None = None
        page.textfile_failures = 0

    def take(self, snapshot: Snapshot) -> None:
        """Write the page of a snapshot."""
        page = self._page.of(snapshot.survey)
        try:
            # Other users may write into the directory. So their links are not followed, and no pipe stops the daemon.
            replace(self._path, page, lasting=False, mode=_MODE, follows=False)
        except OSError as error:
            self._page.textfile_failures = (self._page.textfile_failures or 0) + 1
            if self.trouble is None:
                self._log_event("metrics_failed", f"{self._path}: the metrics cannot be written: {error.strerror}")
            self.trouble = f"{self._path}: {error.strerror}"
            return
        if self.trouble is not None:
            self._log_event("metrics_written", f"{self._path}: the metrics can be written again")
        self.trouble = None

    def remove(self) -> None:
        """Remove the file, because its values no longer change."""
        with contextlib.suppress(OSError):
            self._path.unlink()
