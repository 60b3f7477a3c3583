"""The interface through which the API uses a daemon.

Owns: the methods that the API calls. Must not know: HTTP, how a daemon implements the methods. Invariant: any thread
may call any method while the daemon works.
"""

from __future__ import annotations

from typing import Any, Protocol

from brickd.base.thresholds import Thresholds
from brickd.datasources.world import DaemonStatus, World
from brickd.model.event_log import Log
from brickd.query.orders import (
    CanaryRoundQuery,
    CanaryRunning,
    EndRecording,
    Forgetting,
    Obeyed,
    Rescanning,
    Setting,
    Silencing,
    StartRecording,
)
from brickd.recording.library import FlightShelf, Shelf
from brickd.recording.session import Recorder


class Orders(Protocol):
    """Carries out changes to a daemon."""

    @property
    def thresholds(self) -> Thresholds:
        """Return the thresholds of alarms."""

    def set_thresholds(self, order: Setting) -> Thresholds:
        """Change thresholds; return all thresholds. Raise WrongQuestion for an unknown name or an invalid value."""

    def set(self, order: Setting) -> Obeyed:
        """Set what a service records. Raise NoSuchWorker if no worker has this service."""

    def rescan(self, order: Rescanning) -> list[str]:
        """Tell workers to read their weights again; return their names. Raise NoSuchWorker for an unknown name."""

    def run_canaries(self, order: CanaryRunning) -> dict[str, Any]:
        """Begin a round of canaries; return its document. Raise NoSuchWorker or WrongQuestion for an unknown name."""

    def canary_round(self, query: CanaryRoundQuery) -> dict[str, Any]:
        """Return the document of a round. Raise WrongQuestion for an unknown round."""

    def forget(self, order: Forgetting) -> int:
        """Drop the totals of dead workers; return how many were dropped. Raise NoSuchWorker for an unknown name."""


class Served(World, Protocol):
    """A daemon: its data (a world), its events, and its controls."""

    @property
    def events(self) -> Log:
        """The log of events."""

    @property
    def shelf(self) -> Shelf:
        """The recordings that are being written, or that were not fetched yet."""

    @property
    def flights(self) -> FlightShelf:
        """The recordings that the flight recorder made."""

    def daemon(self) -> DaemonStatus:
        """Return the status of the daemon."""

    @property
    def orders(self) -> Orders:
        """The object that changes the daemon."""

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Begin or end a silence; return the silenced problems. Raise NoSuchProblem for an unknown id."""

    def test_notify(self) -> list[dict[str, Any]]:
        """Send a test to the targets of alarms; return their answers. Raise BrickdError if there is no target."""

    def record(self, order: StartRecording) -> Recorder:
        """Begin a recording. It ends when its last owner ends it.

        Raises:
            NoSuchWorker: one of the names belongs to no worker, or there is no live worker to wait for.
            BrickdError: another recording runs, or no file can be written.
        """

    def end_recording(self, order: EndRecording) -> None:
        """End a recording soon. Raise BrickdError if the recording is not running."""

    def down(self) -> None:
        """Stop the daemon soon, after it has answered earlier requests."""
