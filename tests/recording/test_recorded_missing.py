"""Exactly the checksums that a recording lacks are counted as lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dtypes
import numpy as np
import pytest
from conftest import reading
from faults import Start
from made_up_workers import MadeUp
from rings import SLOT
from tapes import forged
from test_recorded_checked import MINE, ONE, THREE, TWO, WORKERS, made, piece, read, tape
from verbs import started

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.recording import body_codec, recorded_fingerprints
from brickd.recording.body_codec import RecordingCounts
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import SiteKey

CHECKED, DEFER = _reader.KIND_CHECKED, _reader.KIND_DEFER


def collected(bodies: Sequence[bytes], recorded: int, dropped: dict[int, int], mark: str = "") -> Numerics:
    """Return the missing records in a recording of these chunks; `recorded` and `dropped` are the worker's counts of
    events.
    """
    reading = MadeUp().reading()
    lane: Any = {"event_records": recorded, "event_dropped": [dropped.get(kind, 0) for kind in range(16)]}
    header: Any = {**reading.header, "uuid": bytes.fromhex(MINE)}
    lanes: Any = [(0, lane, {})]
    sites: list[SiteKey | None] = [None, SiteKey(1, 0, 0)]
    there = replace(reading, header=header, lanes=lanes, names=[("other", 0), ("w", 0)], sites=sites)
    worker = Worker("made/0", there, ledger_of(reading))
    numerics = Numerics()
    with read([tape(*bodies)]) as files:
        recorded_fingerprints.add(files, [worker], numerics, mark)
    return numerics


@pytest.mark.parametrize(
    ("bodies", "recorded", "dropped", "lost"),
    [
        ([piece(ONE + TWO + THREE, 0)], 3, {}, 0),
        ([piece(ONE, 0), piece(THREE, 10)], 3, {}, 1),
        ([piece(ONE, 0)], 3, {}, 2),  # one record is missing after the last recorded one
        # the second chunk is refused, because it repeats the first
        ([piece(ONE, 0), piece(ONE, 0), piece(TWO, 4)], 2, {}, 1),
        ([piece(ONE + TWO[: 5 * SLOT], 0)], 1, {}, 1),  # the second record is cut
        # An event for which the ring had no room has used up a sequence number, too. Only checksums count as lost here.
        ([piece(ONE, 0), piece(THREE, 10)], 2, {CHECKED: 1}, 1),
        ([piece(ONE, 0), piece(THREE, 10)], 2, {DEFER: 1}, 0),
        ([piece(ONE, 0)], 1, {CHECKED: 2}, 2),
        ([piece(ONE, 0)], 2, {DEFER: 1}, 1),
        # two deferred starts were dropped before the recording began
        ([piece(ONE, 0), piece(THREE, 10)], 1, {DEFER: 2}, 0),
        ([piece(b"", 0, lane=1)], 2, {}, 0),  # nothing of this lane was recorded
    ],
)
def test_missing_checksums_of_a_recording_are_lost_ones(
    bodies: list[bytes], recorded: int, dropped: dict[int, int], lost: int
) -> None:
    numerics = collected(bodies, recorded, dropped, mark="00000001")
    assert {uuid: each.lost for uuid, each in numerics.producers.items()} == {f"00000001{MINE}": lost}


@pytest.mark.parametrize("before", [0, 5])
def test_events_dropped_before_the_recording_explain_no_missing_checksum(
    worker: Start, prefix: str, before: int
) -> None:
    started(worker, "with brick.brick('w'): pass\npause()")
    found = reading(prefix)
    (number, lane, summaries), *_ = found.lanes
    header: Any = {**found.header, "uuid": bytes.fromhex(MINE)}

    def with_counts(recorded: int, dropped: int) -> Worker:
        counts: Any = {"event_records": recorded, "event_dropped": [dropped * (kind == DEFER) for kind in range(16)]}
        there = replace(found, header=header, lanes=[(number, {**lane, **counts}, summaries)])
        return Worker("w/0", there, ledger_of(there))

    first = Snapshot.of(Survey([with_counts(0, before)], []), 1, 1)
    chunks = [
        (_reader.CHUNK_WORKERS, 1, WORKERS),
        (_reader.CHUNK_TABLES, 1, body_codec.tables(first, set()) or b""),
        (_reader.CHUNK_SNAPSHOT, 1, body_codec.snapshot(first, None, RecordingCounts())),
        (_reader.CHUNK_RECORDS, 1, piece(made(before + 1), 0)),
        (_reader.CHUNK_RECORDS, 1, piece(made(before + 4), 10)),
    ]
    numerics = Numerics()
    with read([forged(chunks)]) as files:
        recorded_fingerprints.add(files, [with_counts(3, before + 1)], numerics)
    assert [each.lost for each in numerics.producers.values()] == [1]  # two are missing, and one of them was dropped


def weight(sequence: int) -> bytes:
    slots = np.zeros((4, SLOT), np.uint8)
    slots[0] = np.frombuffer(
        made(sequence, site=1, flags=_reader.CHECKED_WEIGHT, step=1, ticks=10 * sequence), np.uint8
    )[:SLOT]
    sums = slots[2].view(dtypes.dtype("tensor_sums"))
    sums["checksum"], sums["elements"], sums["dtype"] = 5, 64, 12
    return slots.tobytes()


@pytest.mark.parametrize(("recorded", "refused"), [(3, 0), (4, 2)])
def test_weights_that_were_read_after_all_losses_are_complete(recorded: int, refused: int) -> None:
    weights = collected([piece(weight(1), 0), piece(weight(3), 8)], recorded, {}).weights
    holds = weights.of(MINE)
    assert holds is not None
    assert holds.refused == refused
