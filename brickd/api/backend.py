"""The interface of a daemon for the API.

Owns: the methods that the API calls. Must not know: HTTP, how a daemon implements them. Invariant: any thread may call
any method while the daemon works.
"""

from __future__ import annotations

from typing import Any, Protocol

from brickd.base.thresholds import Thresholds
from brickd.datasources.world import DaemonStatus, World
from brickd.model.event_log import Log
from brickd.query.orders import EndRecording, Forgetting, Obeyed, Rescanning, Setting, Silencing, StartRecording
from brickd.recording.library import Shelf
from brickd.recording.session import Recorder


class Orders(Protocol):
    """Carries out changes to a daemon."""

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of alarms."""

    def set_thresholds(self, order: Setting) -> Thresholds:
        """Change thresholds; return all. WrongQuestion: an unknown name or an invalid value."""

    def set(self, order: Setting) -> Obeyed:
        """Set what a service records. NoSuchWorker: no worker has this service."""

    def rescan(self, order: Rescanning) -> list[str]:
        """Ask workers to read their weights again; return their names. NoSuchWorker: unknown."""

    def forget(self, order: Forgetting) -> int:
        """Drop the totals of dead workers; return their number. NoSuchWorker: an unknown name."""


class Served(World, Protocol):
    """A daemon: a world, its events, and its controls."""

    @property
    def events(self) -> Log:
        """The log of events."""

    @property
    def shelf(self) -> Shelf:
        """Recordings that are being written, or were not fetched yet."""

    def daemon(self) -> DaemonStatus:
        """The status of the daemon."""

    @property
    def orders(self) -> Orders:
        """Carries out changes to the daemon."""

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Begin or end a silence; return the silenced problems. NoSuchProblem: an unknown id."""

    def test_notify(self) -> list[dict[str, Any]]:
        """Send a test to the targets of alarms; return their answers. BrickdError: no targets."""

    def record(self, order: StartRecording) -> Recorder:
        """Begin a recording; it ends when its last owner ends it.

        Raises:
            NoSuchWorker: a name belongs to no worker, or there is no live worker to wait for.
            BrickdError: another recording runs, or nothing can be written.
        """

    def end_recording(self, order: EndRecording) -> None:
        """End a recording soon. BrickdError: it is not running."""

    def down(self) -> None:
        """Stop the daemon soon, after answering earlier requests."""
