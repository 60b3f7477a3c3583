"""Checksums in recordings: each has the same kernel and layer as on the machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from faults import Start
from running import running
from test_record import STILL, record, recording
from test_recording_files import chunks, written
from verbs import document, started

from brickd.model.retained_workers import RetainedTotals
from brickd.recording.replay import opened
from brickd.shm import _reader, segment_codec
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find

CHECKS = """
with brick.span("begins"): pass
pause()
for layer in range(3):
    with brick.step(7), brick.layer(layer):
        brick.checksum("attention", bytes([layer]), input=b"in")
brick.checksum("embedding", b"none may look")
brick.checksum("norm", b"out")
pause()
"""
SITES = [("attention", 0, False), ("attention", 1, False), ("attention", 2, False), ("embedding", None, True),
         ("norm", None, False)]  # fmt: skip


def checked(worker: Start, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Make a recording of a worker's checksums. Return it, together with what `inspect` shows once the rings are
    empty.
    """
    process = started(worker, CHECKS, **STILL)
    file = str(tmp_path / "run.brick")
    with recording("-o", file) as recorder:
        process.go()
        process.paused()
        recorder.send_signal(signal.SIGINT)
        recorder.communicate()
    return file, document("inspect", "-n", "100", "api/0")


def sites(inspected: dict[str, Any]) -> list[tuple[str, int | None, bool]]:
    return [(each["brick"], each["layer"], each["off"]) for each in inspected["sites"]]


def kernels(inspected: dict[str, Any]) -> list[tuple[str, int | None]]:
    (lane,) = inspected["lanes"]
    return [(event["brick"], event["layer"]) for event in lane["events"]]


def test_a_recorded_checksum_has_the_kernel_and_layer_of_its_origin(worker: Start, tmp_path: Path) -> None:
    file, live = checked(worker, tmp_path)
    there = document("inspect", "-n", "100", file, "api/0")
    assert sites(there) == sites(live) == SITES
    assert kernels(there) == [(name, layer) for name, layer, off in SITES if not off]
    assert [event["checked"]["position"] for event in there["lanes"][0]["events"]] == [0] * 4


@pytest.mark.ci
def test_shared_sites_are_stored_once_and_workers_without_sites_have_none(worker: Start, tmp_path: Path) -> None:
    for number in range(2):
        process = started(worker, CHECKS, BRICKD_WORKER=str(number), **STILL)
        process.go()
        process.paused()
    started(worker, BRICKD_WORKER="2", **STILL)
    file = tmp_path / "run.brick"
    record("-o", str(file), "--duration", "0.05")
    tables = [json.loads(body) for kind, _, _, body in chunks(file) if kind == _reader.CHUNK_TABLES]
    assert {len(each["sites"]) for each in tables} == {1}
    readings = [
        each["reading"]
        for kind, _, _, body in chunks(file)
        if kind == _reader.CHUNK_SNAPSHOT
        for each in json.loads(body)["workers"]
    ]
    assert {"sites" in each for each in readings if each["header"]["index"] == 2} == {False}
    with opened([str(file)]) as world:
        assert [len(each.reading.sites) for each in world.survey().workers] == [5, 5, 0]


def test_a_file_without_sites_shows_their_numbers(worker: Start, tmp_path: Path) -> None:
    file, _ = checked(worker, tmp_path)
    older = tmp_path / "older.brick"
    with written(older) as recording:
        for kind, _, at_ns, body in chunks(Path(file)):
            reported = body
            if kind in (_reader.CHUNK_TABLES, _reader.CHUNK_SNAPSHOT):
                found = json.loads(body)
                found.pop("sites", None)
                for each in found.get("workers", ()):
                    each["reading"].pop("sites", None)
                reported = json.dumps(found).encode()
            if kind != _reader.CHUNK_RECORDS:
                recording.append(kind, at_ns, reported)
        recording.close()
    there = document("inspect", str(older), "api/0")
    assert there["sites"] == []
    with opened([str(older)]) as world:
        assert world.document()["files"][0]["damages"] == []


@pytest.mark.ci
def test_sites_of_an_ended_worker_stay_with_its_names(worker: Start, tmp_path: Path) -> None:
    with running() as daemon:
        process = started(worker, CHECKS, **STILL)
        daemon.until("worker_found")
        process.go()
        process.paused()
        process.go()
        assert process.end() == 0
        daemon.until("worker_ended")
        file = str(tmp_path / "run.brick")
        record("-o", file, "--duration", "0.05")
        with opened([file]) as world:
            (dead,) = world.survey().workers
            assert not dead.reading.alive
            names = [dead.reading.name(site.name) for site in dead.reading.sites if site]
            assert names == [name for name, _, _ in SITES]


def test_a_decoded_reading_has_its_sites_and_merged_ones_have_none(worker: Start, prefix: str) -> None:
    process = started(worker, CHECKS, **STILL)
    process.go()
    process.paused()
    (file,) = find(prefix)
    with open_segment(file) as segment:
        reading = segment.read()
    assert [(reading.name(site.name), site.off) for site in reading.sites if site] == [
        (name, off) for name, _, off in SITES
    ]
    little = segment_codec.compact(reading)
    texts = segment_codec.SharedTables.over([little]).texts()
    back = segment_codec.reading(
        json.loads(segment_codec.written(little)),
        segment_codec.SharedTables.of({n: json.loads(t) for n, t in texts.items()}),
    )
    assert back.sites == reading.sites
    assert RetainedTotals("api/0", back).and_(RetainedTotals("api/1", reading)).reading.sites == []
