"""One segment as the daemon uses it: validation, requests to the worker, changes during a reading."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dtypes
import forge
import pytest
from conftest import SHM
from forge import PAGE, U64, golden, header_value, place, put, regions, seal, with_header
from rings import folded, rings, spans

from brickd.errors import SegmentRefused, SegmentUnpublished
from brickd.shm import _reader
from brickd.shm.segment import Segment, open_segment


@contextmanager
def opened(prefix: str, image: bytes, access: int = os.O_RDWR) -> Iterator[Segment]:
    (SHM / f"{prefix}a").write_bytes(image)
    with open_segment(f"{prefix}a", access) as segment:
        yield segment


def with_control(minor: str, **values: Any) -> bytes:
    image = bytearray(golden(minor))
    put(image, "control", values)
    return seal(image)


@pytest.mark.parametrize(
    ("image", "kind", "why"),
    [
        (with_header(uid=os.geteuid() + 1), SegmentRefused, f"names user {os.geteuid() + 1} as its creator"),
        (bytes(len(golden())), SegmentUnpublished, "not published"),
        (golden()[:100], SegmentRefused, " bytes, expected at least a header of "),
        (golden()[: PAGE - 1], SegmentRefused, " bytes, expected at least a header of "),
        (golden()[:PAGE], SegmentRefused, "its header says"),
    ],
)
def test_a_refused_segment_leaks_no_descriptor(prefix: str, image: bytes, kind: type[SegmentRefused], why: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SegmentRefused, match=why) as refused, opened(prefix, image):
        pass
    assert (type(refused.value), len(os.listdir("/proc/self/fd"))) == (kind, before)


def test_an_unchanged_setting_is_not_written(prefix: str) -> None:
    asked = {"flags": 2, "fingerprint_rate": 7, "attached": 1, "sites": b""}
    with opened(prefix, with_control("1.7", **asked), os.O_RDONLY) as segment:
        segment.command(2, 7)
        segment.mark_attached()
        for flags, rate, left_out in ((0, 7, 0), (2, 8, 0), (2, 7, 1)):
            with pytest.raises(SegmentRefused, match="cannot be written"):
                segment.command(flags, rate, left_out)
    with (
        opened(prefix, with_control("1.7", attached=0), os.O_RDONLY) as segment,
        pytest.raises(SegmentRefused, match="cannot be written"),
    ):
        segment.mark_attached()


@pytest.mark.parametrize(("minor", "has_epochs"), [("1.7", False), ("1.8", True)])
def test_an_epoch_is_written_only_for_workers_that_sample_by_it(prefix: str, minor: str, has_epochs: bool) -> None:
    with opened(prefix, golden(minor)) as segment:
        assert segment.has_epochs == has_epochs
        assert segment.control()["epoch"] == has_epochs * (1_700_000_020 << 32 | 340_000_000)
        before = segment.control()
        assert _reader.write_all([segment.epoch_write(2**64 - 2)]) == {}
        assert segment.control() == {**before, "epoch": 2**64 - 2}


@pytest.mark.parametrize(("minor", "thins"), [("1.3", False), ("1.4", True), ("1.8", True)])
def test_the_checksum_rate_is_written_only_for_workers_that_support_it(prefix: str, minor: str, thins: bool) -> None:
    with opened(prefix, golden(minor)) as segment:
        assert segment.thins == thins
        segment.command(2, 7, 0b101)
        control, reading = segment.control(), segment.read()
    assert (control["flags"], control["fingerprint_rate"]) == (2, 7 if thins else 0)
    assert (reading.flags, reading.asked_rate, reading.left_out) == (2, 7 * thins, 0b101 * thins)


def test_settings_of_older_workers_that_lack_the_fields_are_ignored(prefix: str) -> None:
    with opened(prefix, with_control("1.3", fingerprint_rate=7, sites=(1,))) as segment:
        reading = segment.read()
    assert (reading.asked_rate, reading.left_out) == (0, 0)


def test_the_number_of_requested_scans_wraps_around(prefix: str) -> None:
    with opened(prefix, with_control("1.7", weights=U64 - 1)) as segment:
        for wanted in (U64, 0, 1):
            segment.rescan()
            assert segment.control()["weights"] == wanted


class Changed:
    """A reader that changes the file after it has copied the summaries."""

    def __init__(self, segment: Segment, change: Callable[[], None]) -> None:
        self._copier, self._change = segment._copier, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copier, name)

    def summaries(self) -> Any:
        found = self._copier.summaries()
        self._change()
        return found


@pytest.mark.parametrize("more", [1, -1])
def test_a_reading_has_as_many_summaries_as_paths_while_paths_are_added(
    prefix: str, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    image = golden("1.7")
    at = forge.place(image, "process") + forge.field("process", "paths")[0]
    paths = struct.unpack_from("<Q", image, at)[0]
    assert 1 < paths < header_value(image, "paths")
    with opened(prefix, image) as segment:

        def change() -> None:
            os.pwrite(segment.fd, struct.pack("<Q", paths + more), at)

        monkeypatch.setattr(segment, "_copier", Changed(segment, change))
        reading = segment.read()
    assert len(reading.paths) == min(paths, paths + more)
    assert len(reading.summaries) == len(reading.paths) * _reader.SUMMARY_BYTES


def test_a_lane_without_a_thread_has_no_summaries() -> None:
    with rings(lanes=3, paths=64) as r:
        r.path(0, _reader.UNIT_TICKS)
        r.put("process", 0, paths=1)
        for lane, duration in enumerate((100, 200, 400)):
            os.pwrite(
                r.fd, folded(spans({"path": 0, "duration": duration})).tobytes(), place(r.page, "summary", 0, lane)
            )
            os.pwrite(r.fd, struct.pack("<Q", 2), regions(r.page)["area"] + lane * regions(r.page)["stride"])
            r.put("lane", lane, opened=int(lane < 2))
        of = _reader.SegmentCopier(r.fd)
        totals = [dtypes.summaries(of.summaries(*only)[0])["total"].tolist() for only in ((), (0,), (1,), (2,))]
    assert totals == [[300], [100], [200], [0]]


def test_a_path_with_an_unknown_unit_is_refused(prefix: str) -> None:
    image = bytearray(golden("1.7"))
    at = forge.place(image, "path", 1)
    (key,) = struct.unpack_from("<Q", image, at)
    struct.pack_into("<Q", image, at, key & ~(0x7F << 56) | _reader.UNIT_BOUND << 56)
    with opened(prefix, bytes(image)) as segment, pytest.raises(SegmentRefused, match="path 1 has unit"):
        segment.read()


@pytest.mark.parametrize("table", ["path", "site"])
def test_a_table_truncated_since_it_was_opened_is_refused(prefix: str, table: str) -> None:
    image = golden("1.7")
    with opened(prefix, image) as segment:
        copier = _reader.SegmentCopier(segment.fd)
        os.truncate(SHM / f"{prefix}a", forge.regions(image)[table] + 8)
        with pytest.raises(ValueError, match="the file was truncated"):
            getattr(copier, f"{table}s")()
