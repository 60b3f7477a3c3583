"""The flight recorder: a new problem leads to a recording of spans; the recordings are few, small, and only our own."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import Start, needs_namespaces
from running import Running, running, until
from serving import ask
from test_record import apart
from test_recording_files import recorded
from test_recording_shelf import id_of, written
from verbs import brickd, document, started

from brickd.analysis.problem import Kind, Problem
from brickd.base.paths import runtime
from brickd.daemon import flight_recorder
from brickd.daemon.daemon import Daemon
from brickd.daemon.flight_recorder import FlightLimits
from brickd.errors import BrickdError, NoSuchProblem
from brickd.model.event_log import Event
from brickd.query.orders import EndRecording, Silencing, StartRecording
from brickd.recording import redact
from brickd.recording.chunks import open_recording
from brickd.recording.library import FlightShelf
from brickd.state.runtime_dir import Home

LONG = FlightLimits(seconds=3600.0)
SHORT = FlightLimits(seconds=0.01, rest_seconds=0.0, most=2)
TURNS = """
a = brick.brick("a")
with a: pass
pause()
for number in range(count):
    with a(elements=number): pass
pause()
"""


@contextmanager
def flying(limits: FlightLimits | None) -> Iterator[Daemon]:
    """Yield a daemon in this process, with a flight recorder."""
    with Home(runtime()) as home:
        daemon = Daemon(home, flight=limits)
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.end()


def look(daemon: Daemon) -> None:
    """Make the daemon look for problems now."""
    with pytest.raises(NoSuchProblem):
        daemon.silence(Silencing(id="none"))


def event(daemon: Daemon, kind: str, since: int = 0) -> Event:
    """Wait for the first event of a kind after an event."""
    found = until(lambda: [each for each in daemon.events.since(since).events if each.kind == kind])
    return found[0]


def died(daemon: Daemon, *workers: Any) -> None:
    """Kill workers, and make the daemon find these problems, in this order."""
    for each in workers:
        each.kill()
        look(daemon)


def take(daemon: Daemon, *kinds: Kind) -> None:
    """Give the flight recorder problems of these kinds."""
    assert daemon._flight is not None
    daemon._flight.take([Problem(kind, "api", (), "", "brickd status") for kind in kinds])


def end(daemon: Daemon) -> None:
    """End the recording of the flight recorder, which may have just begun."""
    recorder = until(lambda: daemon._recordings.running)
    assert recorder is not None
    daemon.end_recording(EndRecording(recorder.id))


def end_over_the_api(daemon: Running) -> None:
    """End the recording of the flight recorder, which may have just begun."""
    (flight,) = daemon.ask("/record")["flight_recordings"]
    order = f"recording={flight['recording']}".encode()
    assert until(lambda: ask(runtime().socket, "/v1/record/end", order).status == 200)


def ids(daemon: Daemon) -> list[str]:
    """Return the ids of the problems, in the order in which they began."""
    return [each.problem.id for each in daemon.problem_book().entries.values()]


def folder() -> Path:
    return runtime().flight_recordings


def names() -> list[str]:
    return sorted(path.name for path in folder().iterdir())


@pytest.mark.ci
def test_a_new_problem_leads_to_a_recording_of_all_spans_until_it_ends(worker: Start, prefix: str) -> None:
    victim = started(worker, BRICKD_SERVICE="b")
    process = started(worker, f"count = 40\n{TURNS}", BRICKD_SERVICE="api")
    with running(options=("--flight-recorder",)) as daemon:
        daemon.once("/status", lambda found: len(found["workers"]) == 2)
        victim.kill()
        assert ask(runtime().socket, "/v1/silence", b"id=none").status == 404  # looks for problems now
        daemon.until("recording_began")
        assert [each["set"]["spans"] for each in document("workers", "api")["workers"]] == ["on"]
        process.go()
        process.paused()
        end_over_the_api(daemon)
        event = daemon.until("flight_recorded")
        daemon.once("/workers?name=api", lambda found: found["workers"][0]["set"]["spans"] == "off")
        (problem,) = daemon.ask("/status")["problems"]
        assert daemon.ask("/record")["recordings"] == [], "it is not one of the recordings that wait to be fetched"
    path = folder() / f"{names()[0]}"
    assert path.name.startswith("flight-")
    assert path.name.endswith(f"-{problem['id']}.brick")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(folder().stat().st_mode)) == (0o600, 0o700)
    assert event["command"] == f"brickd spans {path}"
    assert (event["service"], event["worker"], event["problem"]) == ("b", "b/0", problem["id"])
    assert event["text"].startswith(f"{problem['id']} (died in b): the spans of the next ")
    assert f" are in {path}, " in event["text"]
    assert event["text"].endswith("; the recording ended early, because a client ended it")
    (lane,) = document("inspect", "-n", "100", str(path), "api")["lanes"]
    assert [span["elements"] for span in lane["spans"]] == list(range(40))
    assert document("status", str(path))["recording"]["redacted"]


def test_without_the_option_nothing_is_recorded(worker: Start, prefix: str) -> None:
    victim = started(worker)
    with flying(None) as daemon:
        event(daemon, "worker_found")
        died(daemon, victim)
        assert ids(daemon)
    assert {"recording_began", "flight_missed"}.isdisjoint(each.kind for each in daemon.events.since(0).events)
    assert not folder().exists()


@pytest.mark.ci
def test_brickd_up_has_no_flight_recorder_without_the_option(worker: Start, prefix: str, tmp_path: Path) -> None:
    victim = started(worker)
    with running() as daemon:
        daemon.until("worker_found")
        victim.kill()
        assert ask(runtime().socket, "/v1/silence", b"id=none").status == 404  # looks for problems now
        assert brickd("record", "--duration", "0.1", "-o", str(tmp_path / "run.brick")).returncode == 0
        kinds = [each["kind"] for each in daemon.ask("/events")["events"]]
    assert (kinds.count("recording_began"), kinds.count("flight_missed"), folder().exists()) == (1, 0, False)


def test_by_default_five_recordings_of_20_seconds_take_at_most_256_mib() -> None:
    limits = FlightLimits()
    assert (limits.seconds, limits.most, limits.most * limits.file_bytes <= limits.bytes_max) == (20, 5, True)
    assert limits.bytes_max == 256 << 20


def test_problems_during_a_recording_and_soon_after_it_are_reported_and_not_recorded(
    worker: Start, prefix: str
) -> None:
    victims = [started(worker, BRICKD_SERVICE=service) for service in "abc"]
    with flying(LONG) as daemon:
        until(lambda: len(daemon.survey().workers) == 3)
        died(daemon, victims[0])
        event(daemon, "recording_began")
        died(daemon, victims[1])
        end(daemon)
        text = event(daemon, "flight_recorded").text
        first, second = ids(daemon)
        assert text.startswith(f"{first} (died in a): ")
        assert text.endswith(f"; 1 more problem began at that time: {second} (died in b)")
        died(daemon, victims[2])
        missed = event(daemon, "flight_missed")
        reason = r"was not recorded: the flight recorder rests for another [45]\.\d min after its last recording"
        assert re.fullmatch(rf"{ids(daemon)[2]} \(died in c\) {reason}", missed.text)
        assert (missed.command is not None, missed.problem) == (True, ids(daemon)[2])
    assert len(names()) == 1


def test_a_recording_ends_after_its_time_and_only_the_newest_are_kept(worker: Start, prefix: str) -> None:
    victims = [started(worker, BRICKD_SERVICE=service) for service in "abcd"]
    made = list[str]()
    with flying(SHORT) as daemon:
        until(lambda: len(daemon.survey().workers) == 4)
        for number, victim in enumerate(victims):
            before = daemon.events.since(0).newest
            died(daemon, victim)
            reported = event(daemon, "flight_recorded", before)
            text = reported.text
            assert (reported.command or "").startswith(f"brickd spans {folder()}/flight-")
            assert ("early" in text, "more problem" in text) == (False, False)
            made += sorted(set(names()) - set(made), key=lambda name: os.stat(folder() / name).st_mtime_ns)
            assert len(made) == number + 1
        removed = [each.text for each in daemon.events.since(0).events if each.kind == "recording_removed"]
    assert names() == sorted(made[2:])
    why = "the flight recording was removed: only the 2 newest, with at most 256M, are kept"
    assert removed == [f"{folder() / name}: {why}" for name in made[:2]]


def test_a_problem_that_ended_less_than_an_hour_ago_is_not_new(worker: Start, prefix: str) -> None:
    victim = started(worker)
    with flying(SHORT) as daemon:
        event(daemon, "worker_found")
        found = list[Problem]()
        daemon._problems._record = found.extend
        died(daemon, victim)
        assert [each.kind for each in found] == ["died"]
        book = daemon.problem_book()
        ended = {id_: entry._replace(ended_ns=entry.seen_ns) for id_, entry in book.entries.items()}
        daemon._memory.problems = book._replace(entries=ended)
        look(daemon)
        assert [entry.ended_ns for entry in daemon.problem_book().entries.values()] == [None], "it began again"
        assert len(found) == 1
        daemon._memory.problems = book._replace(entries={})
        look(daemon)
        assert len(found) == 2


def test_an_event_says_what_was_not_recorded() -> None:
    lacking = {"why": "over", "not_recorded": {"records": 3, "snapshots": 1, "events": 0}}
    assert flight_recorder._notes(lacking, []) == ["; not recorded, because there was no room: 3 records, 1 snapshot"]
    assert flight_recorder._notes({"why": "over", "not_recorded": {}}, []) == []


def test_problems_of_brickd_itself_are_not_recorded(prefix: str) -> None:
    kinds: tuple[Kind, ...] = ("off", "lost", "unread", "quarantined", "daemon", "uncounted", "nan")
    with flying(SHORT) as daemon:
        take(daemon, *kinds)
        text = event(daemon, "flight_recorded").text
        assert (text.split()[1], "more problem" in text) == ("(nan", False)
    assert len(names()) == 1


def test_problems_that_are_found_together_are_in_one_event(prefix: str) -> None:
    with flying(SHORT._replace(rest_seconds=3600.0)) as daemon:
        take(daemon, "nan", "stuck")
        text = event(daemon, "flight_recorded").text
        assert (text.split()[1], text.split()[-3:]) == ("(nan", ["(stuck", "in", "api)"])
        take(daemon, "numbers", "memory", "slower")
        missed = event(daemon, "flight_missed").text
        every = r"\w{8} \(numbers in api\), \w{8} \(memory in api\), \w{8} \(slower in api\)"
        assert re.match(rf"{every} were not recorded: ", missed)
        assert [each.kind for each in daemon.events.since(0).events].count("flight_missed") == 1


def test_a_clients_recording_ends_that_of_the_flight_recorder(worker: Start, prefix: str, tmp_path: Path) -> None:
    victim = started(worker)
    with flying(LONG) as daemon:
        event(daemon, "worker_found")
        died(daemon, victim)
        event(daemon, "recording_began")
        client = daemon.record(StartRecording(), tmp_path / "run.brick")
        text = event(daemon, "flight_recorded").text
        assert "; the recording ended early, because a client began another recording" in text
        with pytest.raises(BrickdError, match="is already running"):
            daemon.record(StartRecording(), tmp_path / "other.brick")
        assert daemon._flight is not None
        daemon._flight._rests_until_ns = 0
        take(daemon, "nan")
        assert "(nan in api) was not recorded: a recording is already running" in event(daemon, "flight_missed").text
        assert not client.over.is_set()
    assert client.document()["why"] == "daemon_ended"


def test_a_recording_ends_when_its_file_is_full(worker: Start, prefix: str) -> None:
    victim = started(worker, BRICKD_SERVICE="b")
    process = started(worker, f"count = 4000\n{TURNS}", BRICKD_SERVICE="api")
    with flying(FlightLimits(seconds=3600.0, most=2, bytes_max=1 << 17)) as daemon:
        until(lambda: len(daemon.survey().workers) == 2)
        died(daemon, victim)
        event(daemon, "recording_began")
        process.go()
        process.paused()
        text = event(daemon, "flight_recorded").text
    assert "; the recording ended early, because its file cannot take more data" in text
    (name,) = names()
    assert (folder() / name).stat().st_size <= 1 << 16
    found = document("status", str(folder() / name))["recording"]
    assert (found["files"][0]["ended"], found["files"][0]["records"] > 0) == ("full", True)
    assert found["redacted"]


def test_a_directory_that_cannot_be_written_is_reported(
    worker: Start, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = started(worker)
    with flying(SHORT) as daemon:
        folder().parent.mkdir(parents=True, exist_ok=True)
        folder().write_bytes(b"")
        event(daemon, "worker_found")
        died(daemon, victim)
        assert f"was not recorded: {folder()}: File exists" in event(daemon, "flight_missed").text
        folder().unlink()
        take(daemon, "nan")
        event(daemon, "flight_recorded")


def test_the_recorder_ends_with_the_daemon_even_during_a_recording(prefix: str) -> None:
    with flying(LONG) as daemon:
        take(daemon, "nan")
        event(daemon, "recording_began")
        flight = daemon._flight
        assert flight is not None
        until(lambda: daemon._recordings.running)
        with pytest.raises(BrickdError, match="is already running"):
            daemon._recordings.begin(StartRecording(), folder() / "other.brick", automatic=True)
        flight._new.put(None)
        end(daemon)
        flight._thread.join(30)
        assert not flight._thread.is_alive()


def test_a_defect_of_the_recorder_is_reported_and_it_continues(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with flying(SHORT) as daemon:
        assert daemon._flight is not None
        with monkeypatch.context() as patch:
            patch.setattr(daemon.flights, "keep", lambda *_: 1 // 0)
            daemon._flight.take([Problem("nan", "api", (), "", "brickd hang")])
            assert "was not recorded: brickd has a defect" in event(daemon, "flight_missed").text
        event(daemon, "defect")
        daemon._flight.take([Problem("stuck", "api", (), "", "brickd hang")])
        event(daemon, "flight_recorded")


@pytest.mark.ci
def test_recordings_survive_restarts_and_a_daemon_that_is_killed(worker: Start, prefix: str) -> None:
    victim = started(worker, BRICKD_SERVICE="b")
    process = started(worker, f"count = 40\n{TURNS}", BRICKD_SERVICE="api")
    with running(options=("--flight-recorder",)) as daemon:
        daemon.once("/status", lambda found: len(found["workers"]) == 2)
        victim.kill()
        assert ask(runtime().socket, "/v1/silence", b"id=none").status == 404
        daemon.until("recording_began")
        process.go()
        process.paused()
        path = folder() / names()[0]
        until(lambda: document("status", str(path))["recording"]["files"][0]["records"] == 40)
        daemon.kill()
    with running(options=("--flight-recorder",)) as daemon:
        daemon.once("/workers?name=api", lambda found: found["workers"][0]["set"]["spans"] == "off")
        assert [each["files"][0]["path"] for each in daemon.ask("/record")["flight_recordings"]] == [str(path)]
        assert ask(runtime().socket, "/v1/silence", b"id=none").status == 404
        assert [each for each in daemon.ask("/events")["events"] if each["kind"] == "recording_began"] == []
        daemon.end()
    (lane,) = document("inspect", "-n", "100", str(path), "api")["lanes"]
    assert len(lane["spans"]) == 40


def flight(name: str, length: int = 0) -> Path:
    """Make a flight recording with this name."""
    folder().mkdir(parents=True, exist_ok=True)
    path = recorded(folder() / name).path
    os.truncate(path, max(length, path.stat().st_size))
    return path


def named(number: int) -> str:
    return f"flight-20260101-00000{number}-0000000{number}.brick"


@pytest.fixture
def four(prefix: str) -> list[Path]:
    """Four flight recordings of 1 MiB."""
    return [flight(named(number), 1 << 20) for number in range(4)]


def test_the_oldest_are_removed_until_number_and_size_are_within_the_limits(four: list[Path]) -> None:
    shelf = FlightShelf(folder())
    assert (shelf.has(id_of(four[3])), shelf.has("0" * 32)) == (True, False)
    assert shelf.keep(4, 4 << 20) == []
    assert [each.files[0].path for each in shelf.keep(3, 4 << 20)] == four[:1]
    assert [each.files[0].path for each in shelf.keep(3, (3 << 20) - 1)] == four[1:2]
    assert names() == [path.name for path in four[2:]]
    with open_recording(str(four[2])) as form:
        assert shelf.keep(0, 0) != []
        assert len(list(form)) > 2, "a process that has opened a removed recording can read it"
    assert names() == []


def test_a_recording_in_progress_is_not_removed(four: list[Path]) -> None:
    with written(folder() / named(9)):
        assert [each.files[0].path for each in FlightShelf(folder()).keep(0, 0)] == four
        assert names() == [named(9)]


def test_links_and_foreign_files_are_neither_listed_nor_removed(four: list[Path], tmp_path: Path) -> None:
    secret = tmp_path / "secret.brick"
    four[0].rename(secret)
    four[0].symlink_to(secret)
    (folder() / named(7)).write_bytes(b"no recording")
    (folder() / named(8)).mkdir()
    os.mkfifo(folder() / named(9))
    for foreign in ("mine.brick", f"{named(6)}.bak", f"x{named(6)}", "flight-20260101-000006-XYZ00006.brick"):
        os.link(four[3], folder() / foreign)
    every = names()
    shelf = FlightShelf(folder())
    assert [each.files[0].path for each in shelf.all()] == four[1:]
    assert [each.files[0].path for each in shelf.keep(0, 0)] == four[1:]
    assert names() == [name for name in every if folder() / name not in four[1:]]
    assert secret.exists()


def test_an_existing_link_is_never_written_through(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    folder().mkdir(parents=True)
    monkeypatch.setattr(FlightShelf, "place_for", lambda *_: folder() / named(1))
    (folder() / named(1)).symlink_to(secret)
    with flying(SHORT) as daemon:
        take(daemon, "nan")
        assert "cannot be written: File exists" in event(daemon, "flight_missed").text
    assert secret.read_bytes() == b"secret"


def test_a_recording_that_cannot_be_removed_stops_the_recorder(four: list[Path]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: os.rmdir(folder()))
        with pytest.raises(BrickdError, match=r"000.brick: cannot be removed: Directory not empty"):
            FlightShelf(folder()).keep(3, 1 << 30)
    assert len(names()) == 4


def test_a_recording_begins_only_if_it_fits_into_the_size_of_all(four: list[Path]) -> None:
    for path in four[1:]:
        path.unlink()
    with flying(SHORT._replace(bytes_max=2 * ((1 << 20) - 1))) as daemon:  # half of it is less than the file has
        take(daemon, "nan")
        event(daemon, "flight_recorded")
        assert str(four[0]) in event(daemon, "recording_removed").text
    assert len(names()) == 1


@pytest.mark.ci
def test_a_flight_recording_can_be_fetched(four: list[Path], tmp_path: Path) -> None:
    kept = tmp_path / "kept.brick"
    recording = id_of(four[1])
    with running():
        assert brickd("record", "--fetch", recording, "-o", str(kept)).returncode == 0
        status = ask(runtime().socket, f"/v1/record/file?recording={id_of(four[2])}&number=0").status
        assert status == 200
    assert (kept.exists(), four[1].exists()) == (True, False)


def test_a_redacted_recording_keeps_the_events_of_the_flight_recorder() -> None:
    for kind in ("flight_recorded", "flight_missed"):
        assert redact.keeps_text(kind)


@pytest.mark.slow
@needs_namespaces
def test_a_full_disk_is_reported_and_nothing_is_missed_in_the_totals(worker: Start, tmp_path: Path) -> None:
    victim = started(worker, BRICKD_SERVICE="b")
    process = started(worker, f"count = 2000\n{TURNS}", BRICKD_SERVICE="api")
    disk = tmp_path / "disk"
    options = ("--flight-recorder",)
    with running(apart(disk, "size=64k,mode=700"), options=options, BRICKD_STATE_DIR=str(disk)) as daemon:
        daemon.once("/status", lambda found: len(found["workers"]) == 2)
        victim.kill()
        assert ask(runtime().socket, "/v1/silence", b"id=none").status == 404
        daemon.until("recording_began")
        process.go()
        process.paused()
        daemon.until("recording_failed")
        end_over_the_api(daemon)
        assert "; not recorded, because there was no room: " in daemon.until("flight_recorded")["text"]
        assert document("bricks", "api", "--over", "start")["bricks"][0]["count"] == 2001
