"""What the API reads from a daemon, and asks it to do.

Owns: the interface of a daemon for the API. Must not know: HTTP, how a daemon implements any of it. Invariant:
everything here may be called from any thread, while the daemon works.
"""

from __future__ import annotations

from typing import Any, Protocol

from brickd.base.thresholds import Thresholds
from brickd.datasources.world import DaemonStatus, World
from brickd.model.event_log import Log
from brickd.query.orders import EndRecording, Forgetting, Obeyed, Recording, Rescanning, Setting, Silencing
from brickd.recording.library import Shelf
from brickd.recording.session import Recorder


class Orders(Protocol):
    """Carries out changes to a daemon."""

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of alarms."""

    def set_thresholds(self, order: Setting) -> Thresholds:
        """Change thresholds; returns all. WrongQuestion for an unknown name or a value out of range."""

    def set(self, order: Setting) -> Obeyed:
        """Set what a service records; NoSuchWorker if no worker has this service."""

    def rescan(self, order: Rescanning) -> list[str]:
        """Tell workers to read their weights again; returns their names. NoSuchWorker if unknown."""

    def forget(self, order: Forgetting) -> int:
        """Drop the totals of dead workers; returns their number. NoSuchWorker for an unknown name."""


class Served(World, Protocol):
    """A daemon, as the API sees it: a world, its events, and its controls."""

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
        """Carries out changes to it."""

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Silence a problem, or lift it; returns the silenced ones. NoSuchProblem for an unknown id."""

    def test_notify(self) -> list[dict[str, Any]]:
        """Send a test to the targets of alarms; returns their answers. BrickdError without targets."""

    def record(self, order: Recording) -> Recorder:
        """Begin a recording; it ends when its last owner ends it.

        Raises:
            NoSuchWorker: no worker has one of the names, or no live worker to wait for.
            BrickdError: another recording runs, or nothing can be written.
        """

    def end_recording(self, order: EndRecording) -> None:
        """End a recording soon; BrickdError if it is not running."""

    def down(self) -> None:
        """End the daemon soon; earlier requests are answered."""
