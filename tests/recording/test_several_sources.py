"""Several data sources that are used as one: where the workers come from, and how they are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor
from comparable_workers import NOW, ComparableWorkers

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.datasources.several_worlds import Gathered, WorldPart
from brickd.errors import NoSuchWorker, SegmentRefused
from brickd.model.workers import Survey, Worker
from brickd.views.diff import meant

CLOCK = 1
RECORDS = [CheckedRecord(Tensor(1), (Tensor(7),))]


@pytest.mark.ci
def test_more_than_256_sources_give_each_worker_its_own() -> None:
    worlds = Gathered([WorldPart(f"{number}.brick", ComparableWorkers([RECORDS])) for number in range(257)])
    workers = worlds.survey().workers
    numerics = worlds.numerics(workers)
    assert len({worker.reading.uuid for worker in workers}) == len(workers) == 257
    assert [each.newest.tensors for each in numerics.producers.values()] == list(range(1, 258))


def test_a_pattern_matches_names_and_the_file_before_it_is_literal() -> None:
    found = Gathered(
        [WorldPart(label, ComparableWorkers([RECORDS, RECORDS])) for label in ("run[1].brick", "run1.brick", "")]
    ).survey()

    def names(*patterns: str) -> list[str]:
        return [worker.name for worker in meant(found, patterns)]

    assert names("run[1].brick:api/*") == ["run[1].brick:api/0", "run[1].brick:api/1"]
    assert names("run1.brick:api/[1-9]") == ["run1.brick:api/1"]
    assert names("api/*") == ["api/0", "api/1"]
    assert names("run[1].brick:api") == names("run[1].brick:api/?")
    with pytest.raises(NoSuchWorker):
        names("*.brick:api/0")


class Other(ComparableWorkers):
    """A data source that has workers and other data, read at this time of its clock."""

    def __init__(self, name: str, clocks: dict[int, tuple[int, int]]) -> None:
        super().__init__([RECORDS])
        self.name, self.clocks = name, clocks

    def survey(self) -> Survey:
        one = super().survey().workers[0]
        header: Any = {**one.reading.header, "clock": CLOCK}
        still = one._replace(name=f"{self.name}/1", reading=replace(one.reading, header=header, now_ticks=None))
        refused = [SegmentRefused(f"/dev/shm/{self.name}", "no segment")]
        removed: Any = (f"removed of {self.name}",)
        return Survey([one, still], refused, words=(f"words of {self.name}",), clocks=self.clocks, removed=removed)

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        assert self.name == "a", "no worker of this data source was selected"
        super().add_fingerprints(of, numerics, mark)


def test_notes_refusals_and_removals_come_from_all_sources() -> None:
    found = Gathered([WorldPart("", Other("a", {})), WorldPart("b.brick", Other("b", {}))]).survey()
    assert [each.name for each in found.workers] == ["api/0", "a/1", "b.brick:api/0", "b.brick:b/1"]
    assert [each.path for each in found.refused] == ["/dev/shm/a", "/dev/shm/b"]
    assert found.words == ("words of a", "words of b")
    assert [str(each) for each in found.removed] == ["removed of a", "removed of b"]


def test_a_worker_without_a_clock_reading_uses_that_of_its_source() -> None:
    clocks = {"a": {CLOCK: (7, 0)}, "b": {CLOCK + 1: (9, 0), CLOCK: (8, 0)}, "c": {CLOCK + 1: (9, 0)}}
    found = Gathered([WorldPart(f"{name}.brick", Other(name, of)) for name, of in clocks.items()]).survey()
    assert [each.reading.now_ticks for each in found.workers] == [NOW, 7, NOW, 8, NOW, None]


def test_fingerprints_of_unselected_sources_are_not_read() -> None:
    worlds = Gathered([WorldPart("", Other("a", {})), WorldPart("b.brick", Other("b", {}))])
    one = worlds.survey().workers[0]
    assert list(worlds.numerics([one]).producers) == [one.reading.uuid]
