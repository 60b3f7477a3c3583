"""A recording, shown as it was at a time within it."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import Start
from span_recordings import recording as recorded
from timed_recordings import TIMES, timed
from verbs import document, started

from brickd.errors import RecordingRefused
from brickd.model.event_log import Event
from brickd.model.survey_snapshot import EVERY_NS
from brickd.recording.body_codec import RecordingCounts, RecordingEnd
from brickd.recording.file_index import RecordedEvents
from brickd.recording.replay import opened
from brickd.shm import _reader


@pytest.fixture
def recording(worker: Start, tmp_path: Path) -> str:
    """Make a recording with four snapshots."""
    started(worker, BRICKD_SERVICE="api")
    return timed(tmp_path / "run.brick")


@pytest.mark.parametrize(
    ("lost", "reason"), [(0, r"move: record for longer$"), (1, r"move: was cut at byte .*, or record again\)$")]
)
def test_a_recording_with_too_few_snapshots_says_whether_it_is_damaged(tmp_path: Path, lost: int, reason: str) -> None:
    file, whole = tmp_path / "one.brick", recorded()
    file.write_bytes(whole[: len(whole) - lost])
    with opened([str(file)]) as replay, pytest.raises(RecordingRefused, match=reason):
        replay.before()


def test_a_replay_at_a_time_ends_with_the_last_snapshot_until_then(recording: str) -> None:
    with opened([recording]) as replay:
        second = replay.at(TIMES[1])
        assert (second.at_ns(), second.before().at_ns()) == (TIMES[1], TIMES[0])
        with pytest.raises(RecordingRefused):
            second.before().before()
        assert replay.at(TIMES[1] - 1).at_ns() == TIMES[0]
        assert replay.at(TIMES[2] + 1).at_ns() == TIMES[2]
        assert replay.at(TIMES[3] + EVERY_NS).at_ns() == replay.at_ns() == TIMES[3]
        assert [each.at_ns for each in second._snapshots()] == TIMES[:2]
        assert [worker.name for worker in second.survey().workers] == ["api/0"]
        assert [event.text for event in second.events.since(0).events] == ["look 0", "look 1"]
        assert second.document()["shown"] < replay.document()["shown"]


def test_a_recording_at_an_earlier_time_has_not_ended(recording: str) -> None:
    with opened([recording]) as replay:
        (whole,) = replay._files
        whole.ending = RecordingEnd("asked", RecordingCounts())
        (earlier,) = replay.at(TIMES[1])._files
        assert (earlier.document()["ended"], whole.document()["ended"]) == (None, "asked")


def test_before_the_first_snapshot_the_first_one_is_shown(recording: str) -> None:
    with opened([recording]) as replay:
        assert replay.at(0).at_ns() == replay.at(TIMES[0] - 1).at_ns() == TIMES[0]


def test_the_events_at_a_time_are_those_until_then() -> None:
    events = RecordedEvents()
    for number in (1, 2, 3):
        events.add(Event(number, 100 * number, "looked", "once"))
    assert [each.number for each in events.until(200).since(0).events] == [1, 2]
    assert events.until(99).since(0).events == ()
    assert [each.number for each in events.until(300).since(1).events] == [2, 3]
    assert events.until(200).since(0).missed == 0
    events.add(Event(5, 500, "looked", "once"))
    assert (events.until(400).since(0).missed, events.until(500).since(0).missed) == (0, 1)


def test_the_chunks_at_a_time_end_at_the_next_snapshot(recording: str) -> None:
    with opened([recording]) as replay:
        (earlier,) = replay.at(TIMES[1])._files
        kept = list(earlier._only(*range(_reader.CHUNK_KINDS)))
        assert [each.at_ns for each in kept if each.kind == _reader.CHUNK_SNAPSHOT] == TIMES[:2]
        (whole,) = replay._files
        after = [each for each in whole._only(*range(_reader.CHUNK_KINDS)) if each.offset > kept[-1].offset]
        assert [each.kind for each in after] == [_reader.CHUNK_SNAPSHOT, _reader.CHUNK_EVENTS, _reader.CHUNK_SNAPSHOT]


def test_only_the_snapshots_of_a_period_and_those_next_to_it_are_read(recording: str) -> None:
    with opened([recording]) as replay:
        (file,) = replay._files
        first, second, third, last = TIMES
        for began, ended, read in (
            (first, last + 1, [0, 1, 2, 3]),
            (second, third, [0, 1, 2, 3]),
            (second + 1, third, [0, 1, 2, 3]),
            (third, third + 1, [0, 1, 2, 3]),
            (last, last + 1, [0, 2, 3]),
            (first, first + 1, [0, 1, 3]),
            (last + 1, last + 2, [0, 3]),
            (first - 2, first, [0, 3]),
        ):
            found = [TIMES.index(each.snapshot.at_ns) for each in file.snapshots_of(began, ended)]
            assert found == read, (began - first, ended - first)
        (earlier,) = replay.at(second)._files
        assert [each.snapshot.at_ns for each in earlier.snapshots_of(first, last)] == TIMES[:2]


def test_a_status_about_a_past_time_of_a_recording_is_that_of_its_snapshot(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    dies = started(worker, BRICKD_SERVICE="api")
    timed(path, lambda number: dies.kill() if number == 2 else None)

    def at(number: int) -> tuple[str, list[str], bool]:
        shown = document("status", str(path), "--at", f"@{TIMES[number] / 1e9 + 1}", code=0)
        known = shown["ledger"] is not None and shown["evidence"] is not None
        return shown["workers"][0]["state"], [each["kind"] for each in shown["problems"]], known

    assert [at(number) for number in range(3)] == [("live", [], True)] * 2 + [("died", ["died"], True)]
