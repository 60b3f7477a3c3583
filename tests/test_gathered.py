"""Several worlds as one: who is where, and what everybody is called."""

from __future__ import annotations

import pytest
from said import Said, Tensor
from sided import Sided

from brickd.errors import NoSuchWorker
from brickd.gathered import Gathered, Part
from brickd.views.diff import meant

SAID = [Said(Tensor(1), (Tensor(7),))]


def test_of_more_worlds_than_a_byte_has_numbers_each_worker_is_one_of_its_own() -> None:
    worlds = Gathered([Part(f"{number}.brick", Sided([SAID])) for number in range(257)])
    workers = worlds.survey().workers
    numerics = worlds.numerics(workers)
    assert len({worker.reading.uuid for worker in workers}) == len(workers) == 257
    assert [each.heard for each in numerics.speakers.values()] == list(range(1, 258))


def test_a_pattern_is_of_names_and_the_file_before_it_is_that_file() -> None:
    found = Gathered([Part(label, Sided([SAID, SAID])) for label in ("run[1].brick", "run1.brick", "")]).survey()

    def names(*patterns: str) -> list[str]:
        return [worker.name for worker in meant(found, patterns)]

    assert names("run[1].brick:api/*") == ["run[1].brick:api/0", "run[1].brick:api/1"]
    assert names("run1.brick:api/[1-9]") == ["run1.brick:api/1"]
    assert names("api/*") == ["api/0", "api/1"]
    assert names("run[1].brick:api") == names("run[1].brick:api/?")
    with pytest.raises(NoSuchWorker):
        names("*.brick:api/0")
