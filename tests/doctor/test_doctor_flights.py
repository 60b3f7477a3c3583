"""What `brickd doctor` says about the flight recorder."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from serving import Daemon, serving
from test_recording_files import recorded

from brickd.base.paths import runtime
from brickd.datasources.world import DaemonStatus
from brickd.doctor import flight_recorder
from brickd.doctor.flight_recorder import FlightFacts

LAST = {"at": "2026-03-11T03:12:40Z", "problem": "4f1c09aa", "text": "4f1c09aa (died in b) was …"}


@pytest.mark.parametrize(("result", "state"), [("recorded", "ok"), ("rested", "ok"), ("failed", "advice")])
def test_only_a_problem_that_was_not_recorded_because_of_a_fault_is_advice(result: str, state: str) -> None:
    last = {**LAST, "result": result}
    found = flight_recorder.judge(FlightFacts("on", last, recordings=2, bytes=12 << 20, directory="/s/flights"))
    assert found.state == state
    assert (
        found.seen == "on; 2 recordings in /s/flights, 12 MiB; last: 2026-03-11T03:12:40Z: 4f1c09aa (died in b) was …"
    )


@pytest.mark.parametrize("state", ["on", "off"])
def test_a_flight_recorder_without_recordings_and_none_at_all_are_fine(state: str) -> None:
    found = flight_recorder.judge(FlightFacts(state))
    assert (found.seen, found.state) == (f"{state}; no recordings", "ok")


class Off(Daemon):
    """A daemon without a flight recorder."""

    state: ClassVar[dict[str, Any] | None] = None

    def daemon(self) -> DaemonStatus:  # type: ignore[override]
        return super().daemon()._replace(flight_recorder=self.state)


class On(Off):
    """A daemon with a flight recorder."""

    state: ClassVar = {"rests_ns": 0, "last": LAST}


class EarlierStatus(DaemonStatus):
    """The status of a daemon that knows nothing of flight recorders."""

    def document(self) -> dict[str, Any]:
        return {key: value for key, value in super().document().items() if key != "flight_recorder"}


class Earlier(Daemon):
    """A daemon of an earlier brickd."""

    def daemon(self) -> DaemonStatus:  # type: ignore[override]
        return EarlierStatus(*super().daemon())


@pytest.mark.parametrize(
    ("kind", "state", "last"),
    [
        (Off, "off", None),
        (On, "on", LAST),
        (Earlier, "not known: the daemon is another brickd, which does not report it", None),
    ],
)
def test_the_state_is_that_of_the_daemon(
    prefix: str, kind: type[Daemon], state: str, last: dict[str, Any] | None
) -> None:
    with serving(runtime().socket, kind=kind):
        assert flight_recorder.observe() == FlightFacts(state, last)


def test_without_a_daemon_the_state_is_not_known_and_the_recordings_are(prefix: str) -> None:
    assert flight_recorder.observe() == FlightFacts("not known: no daemon answers")
    folder = runtime().flight_recordings
    folder.mkdir(parents=True)
    paths = [folder / f"flight-20260101-00000{number}-0000000{number}.brick" for number in range(2)]
    length = sum(recorded(path).path.stat().st_size for path in paths)
    assert flight_recorder.observe() == FlightFacts("not known: no daemon answers", None, 2, length, str(folder))
