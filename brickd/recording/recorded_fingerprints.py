"""The fingerprints and weights of a recording, and how many of them are missing.

Owns: how many records are missing. Must not know: how the two parts of a split checksum are joined, which snapshot is
shown. Invariant: missing records are counted as lost. They are never reported as if they were equal.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.weights.shards import shard_of
from brickd.model.workers import Worker
from brickd.recording.checksum_records import Checked
from brickd.recording.file_index import FileIndex
from brickd.shm import _reader
from brickd.shm.segment_copy import Reading
from brickd.shm.sites import WorkerNames


def add(files: Sequence[FileIndex], of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
    """Add the fingerprints of workers to `numerics`, with `mark` as a prefix of the workers' uuids."""
    readings = {worker.reading.uuid: worker.reading for worker in of}
    producers = {
        uuid: numerics.producer(
            mark + uuid,
            reading.service,
            functools.partial(WorkerNames, reading.names, reading.sites),
            shard_of(reading.coordinates),
        )
        for uuid, reading in readings.items()
    }
    for file in files:
        if (weights := file.weights()) is not None:
            services = {uuid: holds.service for uuid in weights if (holds := weights.of(uuid)) is not None}
            same = [uuid for uuid, reading in readings.items() if services.get(uuid) == reading.service]
            numerics.weights.merge(weights.about(same), mark)
    checked = Checked(files, readings.keys(), step_texts=lambda uuid, texts: producers[uuid].name_steps(texts))
    for uuid, records in checked:
        producers[uuid].receive(records)
    unrecorded = _unrecorded(checked, readings)
    for uuid, producer in producers.items():
        dropped = sum(lane["event_dropped"][_reader.KIND_CHECKED] for _, lane, _ in readings[uuid].lanes)
        producer.lose(dropped + unrecorded.get(uuid, 0))
        if uuid in unrecorded:
            numerics.weights.lose(mark + uuid, unrecorded[uuid], checked.lost[uuid].until)


def _unrecorded(checked: Checked, readings: Mapping[str, Reading]) -> dict[str, int]:
    """Return how many records of each worker are missing for a reason other than a full ring.

    Each attempt to record has a number, and the worker counts the attempts for which a ring had no room. All other
    missing records did reach the ring. They were then damaged, or there was no room for them in memory or on the disk.
    The result has the workers' uuids as keys, and counts records of all kinds.
    """
    missing: dict[str, int] = {}
    for uuid, lost in checked.lost.items():
        unread = sum(
            max(0, lane["event_records"] + sum(lane["event_dropped"]) - checked.last[uuid, number])
            for number, lane, _ in readings[uuid].lanes
            if (uuid, number) in checked.last
        )
        if unread:
            lost.until = None
        if lost.missing + unread:
            missing[uuid] = lost.missing + unread
    before = next((shown.snapshot for file in checked.files for shown in file.snapshots()), None) if missing else None
    begun = {each.reading.uuid: each.reading for each in before.survey.workers} if before is not None else {}
    found = {uuid: lost.cut + lost.rejected for uuid, lost in checked.lost.items()}
    for uuid, count in missing.items():
        dropped = _dropped(readings[uuid]) - (_dropped(begun[uuid]) if uuid in begun else 0)
        found[uuid] += max(0, count - dropped)
    return {uuid: count for uuid, count in found.items() if count}


def _dropped(reading: Reading) -> int:
    """Return the number of events for which the rings had no room."""
    return sum(sum(lane["event_dropped"]) for _, lane, _ in reading.lanes)
