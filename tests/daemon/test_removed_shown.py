"""Removed workers in documents and on screens: each is reported once, and is in no total."""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path

import pytest
from conftest import SHM
from faults import Compile, Start, native, needs_namespaces, program
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from removals import FULL, GREEDY, RECORD, REFUSED, dead, file_of, newcomer, record_of, records, small, takes_along
from verbs import brickd, document, started

from brickd.daemon.collector import STILL_NS
from brickd.daemon.prune import prune
from brickd.doctor import removed_workers as doctor
from brickd.model.background import Background
from brickd.model.worker_survey import survey
from brickd.screens.health import Bounds, conditions
from brickd.screens.screen import Screen
from brickd.screens.status import render
from brickd.shm import _reader, removed_file
from brickd.shm.removed_workers import Removals, RemovedWorker, WorkerCounts, uncounted
from brickd.shm.segment_files import find

WIDE = Screen(None, False)


def spans_of(prefix: str, background: Background | None = None) -> tuple[int, int]:
    """Return the number of shown spans and of removed spans."""
    found = survey(prefix, background or Background())
    shown = sum(worker.ledger.spans["begun"] for worker in found.workers)
    return shown, sum(each.counts.spans for each in found.removed)


# ---- screens


@pytest.mark.ci
@needs_namespaces
def test_100_killed_workers_of_1000_spans_are_shown_or_counted_as_removed(worker: Start, prefix: str) -> None:
    process = worker(
        small(64)
        + """
import json
killed(100, 1000)
for _ in range(3): comes()
done = subprocess.run([sys.executable, "-P", "-m", "brickd", "status", "--json"], stdout=subprocess.PIPE)
report(json.loads(done.stdout))
"""
    )
    after = process.next_report()
    assert process.end() == 0
    spans, removed = after["ledger"]["spans"], after["removed"]
    assert spans["begun"] + spans["removed"] == 100_000
    assert 0 < spans["removed"] == removed["spans"] == 1000 * removed["workers"]
    who = f"{spans['removed']:,} spans of {removed['workers']} removed workers"
    text = f"{who} are missing in all totals: no daemon kept them"
    assert (text, "brickd up -d") in [(each["text"], each["command"]) for each in after["problems"]]
    assert f"removed  {spans['removed']:,} spans of {removed['workers']} workers, in no total" in render(after, WIDE)
    (judged,) = [each for each in conditions(after, None, Bounds()) if each.name == "removed"]
    assert (judged.healthy, judged.seen, judged.command) == (False, f"{spans['removed']:,} removed", "brickd up -d")


def test_a_worker_that_was_shown_and_ended_cleanly_is_counted_as_removed(worker: Start, prefix: str) -> None:
    process = started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="3.tp1")
    before = document("status")
    process.go()
    assert process.end() == 0
    after = document("status")
    assert after["workers"] == []
    assert after["ledger"]["spans"] == {
        **dict.fromkeys(before["ledger"]["spans"], 0),
        "removed": before["ledger"]["spans"]["begun"],
    }
    reported = "200 spans of 1 removed worker are missing in all totals: no daemon kept them"
    assert [(each["text"], each["command"]) for each in after["problems"]] == [(reported, "brickd up -d")]
    (entry,) = document("workers")["removed"]
    uuid, began = before["workers"][0]["uuid"], before["workers"][0]["started"]
    assert {name: entry[name] for name in ("uuid", "service", "index", "coordinates", "reason", "started")} == {
        **{"uuid": uuid, "service": "api", "index": 3, "coordinates": "3.tp1", "reason": "ended", "started": began},
    }
    assert (entry["spans"], entry["removed"] > began) == (200, True)
    for verb in ("status", "workers"):
        screen = brickd(verb).stdout
        assert "no workers" in screen
        assert reported in screen
        assert "removed  200 spans of 1 worker, in no total\n" in screen


@pytest.mark.ci
def test_removed_workers_can_be_selected_by_service(worker: Start, prefix: str) -> None:
    for service in ("api", "batch"):
        process = started(worker, BRICKD_SERVICE=service)
        process.go()
        assert process.end() == 0
    started(worker, BRICKD_SERVICE="batch")
    assert [each["service"] for each in document("workers", "api")["removed"]] == ["api"]
    assert document("status", "api")["ledger"]["spans"]["removed"] == 200
    assert document("status", "batch")["ledger"]["spans"] == {
        **document("status", "batch/0")["ledger"]["spans"],
        "removed": 200,
    }
    assert document("status")["ledger"]["spans"]["removed"] == 400


# ---- counted once


def test_a_record_whose_segment_exists_adds_nothing(compiled: Compile, prefix: str) -> None:
    with native(program(compiled, "removed", *GREEDY), "5", "recorded", "1") as process:
        process.paused()
        process.end()
    assert (len(find(prefix)), len(records(prefix))) == (1, 1)
    assert spans_of(prefix) == (5, 0)
    newcomer(compiled)
    assert (find(prefix), len(records(prefix))) == ([], 2)
    assert spans_of(prefix) == (0, 5)


@pytest.mark.ci
def test_a_kill_during_a_removal_leaves_each_span_shown_or_removed(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 200, 3000):
        seen = [spans_of(prefix)]
        for at in ("1", "1", "2", "1"):
            newcomer(compiled, "recorded", at)
            seen.append(spans_of(prefix))
        newcomer(compiled)
        assert [sum(each) for each in seen] == [3210] * 5
    assert spans_of(prefix) == (0, 3210)


def test_a_record_of_a_living_worker_adds_nothing(worker: Start, prefix: str) -> None:
    process = started(worker)
    (file,) = find(prefix)
    assert _reader.append_removed(prefix, record_of(bytes.fromhex(file.removeprefix(prefix)), 10**12))
    assert spans_of(prefix) == (200, 0)
    with machine(prefix) as daemon:
        assert [sum(each.counts.spans for each in daemon.survey().removed)] == [0]
    process.kill()
    assert spans_of(prefix) == (200, 0), "the segment still exists"


def test_a_removed_worker_adds_only_counts_missing_from_the_checkpoint(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("b"): pass\nbrick.span("b").__enter__()\npause()')
    process.paused()
    (file,) = find(prefix)
    uuid = bytes.fromhex(file.removeprefix(prefix))
    assert _reader.append_removed(prefix, record_of(uuid, 2))
    with machine(prefix) as daemon:
        process.kill()
        daemon.now_ns += STILL_NS
        daemon.tick()
        background = daemon.loop.memory.background()
    assert (find(prefix), list(background.gone)) == ([], [uuid.hex()])
    assert spans_of(prefix, background) == (2, 0)
    assert _reader.append_removed(prefix, record_of(uuid, 5))
    assert spans_of(prefix, background) == (2, 3), "the worker continued after the daemon had taken it for dead"
    assert spans_of(prefix) == (0, 5)
    settled = Background(buried=frozenset([uuid.hex()]))
    assert spans_of(prefix, settled) == (0, 0), "the worker is in an entry of several merged workers"


def test_a_worker_that_continues_in_another_segment_is_not_removed(worker: Start, prefix: str) -> None:
    lost, never = bytes(range(16)), bytes(range(16, 32))
    assert _reader.append_removed(prefix, record_of(lost, 7))
    assert spans_of(prefix) == (0, 7)
    started(worker)
    (file,) = find(prefix)
    takes_along(file, lost)
    assert spans_of(prefix) == (200, 0)
    assert _reader.append_removed(prefix, record_of(never, 9))
    assert spans_of(prefix) == (200, 9)
    assert _reader.append_removed(prefix, record_of(bytes(16), 20, took=int.from_bytes(never[:8], "little")))
    assert spans_of(prefix) == (200, 20), "the second worker has also ended"


LOST, SECOND, THIRD = (f"{n:02x}" * 16 for n in (1, 2, 3))


def went_on(uuid: str, took: str, spans: int) -> RemovedWorker:
    """Return the record of a removed worker.

    It had lost the segment `took`, and had continued in the segment `uuid`.
    """
    return RemovedWorker(uuid, took[:16], "api", -1, "", _reader.REMOVED_ROOM, 1, 2, False, 1, WorkerCounts(spans))


@pytest.mark.parametrize(
    ("records", "shown", "counted"),
    [
        ([went_on(SECOND, LOST, 7)], {}, [7]),
        ([went_on(SECOND, LOST, 7)], {LOST: WorkerCounts(5)}, [2]),
        ([went_on(SECOND, LOST, 7)], {LOST: WorkerCounts(5), SECOND: WorkerCounts(6)}, [1]),
        ([went_on(SECOND, LOST, 7), went_on(THIRD, SECOND, 9)], {LOST: WorkerCounts(5)}, [4]),
        ([went_on(SECOND, THIRD, 7), went_on(THIRD, SECOND, 9)], {LOST: WorkerCounts(5)}, []),
        ([went_on(SECOND, "", 7)], {LOST: WorkerCounts(5)}, [7]),
    ],
    ids=["not shown", "shown", "both shown", "lost twice", "in a circle", "no loss"],
)
def test_spans_of_a_lost_segment_in_a_shown_total_count_once(
    records: list[RemovedWorker], shown: dict[str, WorkerCounts], counted: list[int]
) -> None:
    assert [each.counts.spans for each in uncounted(records, shown, (), ())] == counted


def test_spans_of_a_lost_segment_in_a_dropped_total_count_once() -> None:
    removals = Removals()
    removals.fold([went_on(SECOND, LOST, 7)])
    assert removals.settle(LOST, WorkerCounts(5)) == [LOST, SECOND]
    assert (removals.alone, removals.sums["api", False].counts.spans) == ({}, 2)


def test_a_worker_is_not_merged_while_a_total_shows_its_lost_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brickd.shm.removed_workers.ALONE_MAX", 1)
    removals = Removals()
    removals.fold([went_on(SECOND, LOST, 7), went_on(THIRD, "", 9), went_on("04" * 16, "", 9)])
    assert removals.limit({LOST}) == [THIRD]
    assert list(removals.alone) == [SECOND, "04" * 16]
    assert removals.limit(()) == [SECOND]


def test_lost_counts_of_a_removed_worker_include_every_cause() -> None:
    sealed = bytearray(record_of(bytes(16), 0))
    sealed[12:16] = zlib.crc32(sealed).to_bytes(4, "little")
    (record,) = _reader.removed(bytes(sealed))
    assert record is not None
    record |= {"rejected": (1, 2), "no_lane": 4, "nested": 8, "span_dropped": 16, "event_dropped": 32}
    assert RemovedWorker.of(record).counts.lost == 63


NUMBER = st.integers(0, 2**64 - 1) | st.integers(0, 3)
COUNTS = st.builds(WorkerCounts, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER)
UUIDS = [f"{n:032x}" for n in range(1, 5)]


def removed(uuid: str, counts: WorkerCounts, took: str = "") -> RemovedWorker:
    return RemovedWorker(uuid, took, "api", -1, "", _reader.REMOVED_ROOM, 0, 0, False, 1, counts)


@pytest.mark.ci
@given(
    st.lists(st.builds(removed, st.sampled_from(UUIDS), COUNTS), max_size=12),
    st.dictionaries(st.sampled_from(UUIDS), COUNTS),
    st.sets(st.sampled_from([uuid[:16] for uuid in UUIDS])),
    st.sets(st.sampled_from(UUIDS)),
    st.randoms(use_true_random=False),
)
def test_each_worker_counts_once_in_any_order_of_records(
    records: list[RemovedWorker],
    shown: dict[str, WorkerCounts],
    taken: set[str],
    settled: set[str],
    chance: random.Random,
) -> None:
    found = {each.uuid: each.counts for each in uncounted(records, shown, taken, settled)}
    assert len(found) == len(uncounted(records, shown, taken, settled)), "no uuid is listed twice"
    spans = {uuid: max((each.counts.spans for each in records if each.uuid == uuid), default=0) for uuid in UUIDS}
    for uuid in UUIDS:
        counted = (
            0 if uuid in settled or uuid[:16] in taken else max(0, spans[uuid] - shown.get(uuid, WorkerCounts()).spans)
        )
        assert found.get(uuid, WorkerCounts()).spans == counted
    assert all(n >= 0 for counts in found.values() for n in counts)
    chance.shuffle(records)
    shuffled = {each.uuid: each.counts.spans for each in uncounted(records, shown, taken, settled)}
    assert {uuid: n for uuid, n in shuffled.items() if n} == {uuid: c.spans for uuid, c in found.items() if c.spans}


@pytest.mark.ci
def test_a_recorded_worker_removes_its_segment_and_counts_as_removed(
    worker: Start, prefix: str, tmp_path: Path
) -> None:
    process = started(worker)
    assert brickd("record", "-o", str(tmp_path / "a.brick"), "--duration", "0.01").returncode == 0
    assert document("status")["ledger"]["spans"]["begun"] == 200
    process.go()
    assert process.end() == 0
    assert find(prefix) == []
    assert document("status")["ledger"]["spans"]["removed"] == 200


# ---- removals by a person


def test_pruned_workers_are_counted_and_are_no_problem(compiled: Compile, prefix: str) -> None:
    with dead(compiled, prefix, 10, 0, 20) as files:
        assert spans_of(prefix) == (30, 0)
        reported = prune(remove=False, wait=lambda _: None)
        assert ([each.file for each in reported.removed], records(prefix)) == (sorted(files), [])
        done = prune(remove=True, wait=lambda _: None)
        assert sorted(each.file for each in done.removed) == sorted(files)
    assert spans_of(prefix) == (0, 30)
    assert {each["reason"] for each in document("workers")["removed"]} == {"pruned"}
    status = document("status")
    assert (status["ledger"]["spans"]["removed"], status["problems"]) == (30, [])
    assert document("status", "--check", "--allow-empty")["healthy"]
    assert status["removed"] == {"workers": 2, "spans": 30, "unasked_workers": 0, "unasked_spans": 0}


@pytest.mark.parametrize("how", REFUSED)
def test_prune_keeps_uncounted_segments_where_no_record_can_be_written(
    compiled: Compile, prefix: str, how: str
) -> None:
    with dead(compiled, prefix, 10, 0) as (file, _):
        REFUSED[how](file_of(prefix))
        (SHM / f"{prefix}junk").write_bytes(b"no segment")
        done = prune(remove=True, refused_too=True, wait=lambda _: None)
        assert [str(each) for each in done.refused] == [
            f"{file}: is not removed, because no record of the removal can be written"
        ]
        assert find(prefix) == [file]
        reported = prune(remove=False, wait=lambda _: None)
        assert [each.file for each in reported.removed] == [file]


@pytest.mark.parametrize(
    "reasons",
    [(_reader.REMOVED_PRUNED, _reader.REMOVED_ROOM), (_reader.REMOVED_ROOM, _reader.REMOVED_PRUNED)],
)
def test_a_worker_removed_by_prune_and_another_worker_at_once_is_no_problem(
    prefix: str, reasons: tuple[int, int]
) -> None:
    for reason in reasons:
        assert _reader.append_removed(prefix, record_of(bytes(range(16)), 7, reason=reason))
    assert document("status")["removed"] == {"workers": 1, "spans": 7, "unasked_workers": 0, "unasked_spans": 0}


# ---- files that are not trusted


BELIEVED = ("full", "incomplete record")


@pytest.mark.parametrize("how", [how for how in REFUSED if how not in BELIEVED])
def test_a_world_writable_record_file_is_ignored_and_doctor_reports_it(prefix: str, how: str) -> None:
    assert _reader.append_removed(prefix, record_of(bytes(range(16)), 7))
    content = file_of(prefix).read_bytes()
    file_of(prefix).unlink()
    REFUSED[how](file_of(prefix))
    if file_of(prefix).is_file():
        file_of(prefix).write_bytes(content)
    assert spans_of(prefix) == (0, 0)
    assert find(prefix) == []
    assert document("status", "--check", "--allow-empty")["healthy"]
    finding = doctor.judge(doctor.observe(prefix))
    assert (finding.name, finding.state, finding.about) == ("segments-removed", "advice", ())
    assert finding.seen.startswith(f"{file_of(prefix)}: ")
    fix = {"of another user": "sudo rm -r -- ", "writable by its group": "chmod 600 "}
    fix["readable by others"] = "chmod 600 "
    assert finding.fix == fix.get(how, "rm -r -- ") + str(file_of(prefix))


@pytest.mark.ci
def test_doctor_distinguishes_a_usable_record_file_from_an_unusable_one(prefix: str) -> None:
    def seen() -> tuple[str, str, str | None]:
        finding = doctor.judge(doctor.observe(prefix))
        return finding.state, finding.seen, finding.fix

    assert seen() == ("ok", "0 records", None)
    assert _reader.append_removed(prefix, record_of(bytes(16), 7))
    assert seen() == ("ok", "1 record", None)
    with file_of(prefix).open("ab") as opened:
        opened.write(b"x" * (RECORD + 1))
    assert seen() == ("advice", "1 record and 2 damaged", "brickd up -d")
    os.truncate(file_of(prefix), RECORD)
    file_of(prefix).write_bytes(file_of(prefix).read_bytes() * _reader.REMOVED_MAX)
    assert seen() == ("advice", "4,096 records, full", "brickd up -d")


@pytest.mark.ci
def test_doctor_checks_the_record_file(prefix: str) -> None:
    assert _reader.append_removed(prefix, record_of(bytes(16), 7))
    found = {each["name"]: each["seen"] for each in json.loads(brickd("doctor", "--json").stdout)["findings"]}
    assert found["segments-removed"] == "1 record"


def test_a_record_file_of_1_gib_is_not_read(prefix: str) -> None:
    file_of(prefix).touch(0o600)
    os.truncate(file_of(prefix), 1 << 30)
    found = removed_file.look(prefix)
    assert (found.content, found.refused) == (b"", "1,073,741,824 bytes, expected at most 2,097,152")
    os.truncate(file_of(prefix), 2 * FULL)
    assert (removed_file.look(prefix).refused, removed_file.look(prefix).damaged) == ("", 8192)


@given(st.binary(max_size=3 * RECORD), st.integers(0, 2), st.integers(0, RECORD * 8 - 1))
def test_only_whole_records_in_a_file_of_any_bytes_count(junk: bytes, before: int, flipped: int) -> None:
    sealed = bytearray(record_of(bytes(range(16)), 7))
    # the record's checksum, computed while its checksum field is 0
    sealed[12:16] = zlib.crc32(sealed).to_bytes(4, "little")
    damaged = bytearray(sealed)
    damaged[flipped // 8] ^= 1 << flipped % 8
    junk = junk[: before * RECORD].ljust(before * RECORD, b"x")
    found = _reader.removed(junk + bytes(damaged) + bytes(sealed) + b"x" * (before * 85))
    assert [each is not None for each in found] == [False] * before + [False, True] + [False] * bool(before)
