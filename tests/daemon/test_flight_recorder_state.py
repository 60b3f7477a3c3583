"""The state of the flight recorder in the daemon's status, and recordings that are removed by others."""

from __future__ import annotations

import pytest
from running import until
from test_flight_recorder import LONG, SHORT, end, event, flight, flying, folder, named, names, take

from brickd.base.units import SECOND
from brickd.daemon.daemon import Daemon
from brickd.recording.library import FlightShelf


def last(daemon: Daemon) -> dict[str, str]:
    """Return the last result of the flight recorder."""
    state = daemon.daemon().document()["flight_recorder"]
    found: dict[str, str] = state["last"]
    return found


def test_a_daemon_without_a_flight_recorder_has_no_state_of_one(prefix: str) -> None:
    with flying(None) as daemon:
        assert daemon.daemon().document()["flight_recorder"] is None


def test_the_state_has_the_last_result_and_the_rest(prefix: str) -> None:
    with flying(SHORT._replace(rest_seconds=3600.0)) as daemon:
        assert daemon.daemon().document()["flight_recorder"] == {"rests_ns": 0, "last": None}
        take(daemon, "nan")
        recorded = event(daemon, "flight_recorded")
        assert (last(daemon)["result"], last(daemon)["text"]) == ("recorded", recorded.text)
        assert last(daemon)["problem"] == recorded.problem
        rests_ns = daemon.daemon().document()["flight_recorder"]["rests_ns"]
        assert 3500 * SECOND < rests_ns <= 3600 * SECOND
        take(daemon, "stuck")
        missed = event(daemon, "flight_missed")
        assert (last(daemon)["result"], last(daemon)["text"]) == ("rested", missed.text)
        assert recorded.document()["time"] <= last(daemon)["at"] <= missed.document()["time"]


def test_a_recording_that_cannot_begin_failed(prefix: str) -> None:
    with flying(SHORT) as daemon:
        folder().parent.mkdir(parents=True, exist_ok=True)
        folder().write_bytes(b"")
        take(daemon, "nan")
        missed = event(daemon, "flight_missed")
        assert (last(daemon)["result"], last(daemon)["text"]) == ("failed", missed.text)


def test_a_defect_failed(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with flying(SHORT) as daemon:
        monkeypatch.setattr(daemon.flights, "keep", lambda *_: 1 // 0)
        take(daemon, "nan")
        event(daemon, "flight_missed")
        assert last(daemon)["result"] == "failed"


def test_a_recording_that_is_removed_while_it_is_written_was_not_recorded(prefix: str) -> None:
    with flying(LONG) as daemon:
        take(daemon, "nan")
        event(daemon, "recording_began")
        (name,) = names()
        (folder() / name).unlink()
        folder().rmdir()
        take(daemon, "stuck")
        end(daemon)
        missed = event(daemon, "flight_missed")
        assert missed.text.endswith(
            f"(nan in api) was not recorded: {folder() / name}: was removed while it was written"
        )
        until(daemon.flights.all)
        assert "(stuck" not in missed.text, "the next problem is recorded in a new directory"


def test_a_recording_that_another_daemon_just_removed_stops_nothing(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [flight(named(number)) for number in range(3)]
    shelf = FlightShelf(folder())
    listed = shelf.all()
    paths[0].unlink()
    monkeypatch.setattr(shelf, "all", lambda: [*listed])
    assert [each.files[0].path for each in shelf.keep(1, 1 << 30)] == paths[:2]
    assert names() == [paths[2].name]
