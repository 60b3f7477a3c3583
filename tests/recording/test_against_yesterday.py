"""`status --against yesterday`: which period of time is compared, what changed, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_workers import MadeUp
from test_day_slots import whole
from test_recording_files import written
from test_windows import snapshot, work, worker

from brickd.base.timestamps import rfc3339
from brickd.base.units import SECOND
from brickd.datasources.shared_memory import SharedMemory
from brickd.errors import BrickdError, NoDaemon, WrongQuestion
from brickd.model.day_slots import DaySlot
from brickd.query.queries import BricksQuery, HistoryQuery, StatusQuery, TreeQuery
from brickd.recording import body_codec as bodies
from brickd.recording.replay import opened
from brickd.screens import brick_comparison
from brickd.screens.screen import Screen
from brickd.shm import _reader
from brickd.views import bricks, history, status, tree
from brickd.views.common import AskedPeriod, other_period

DAY_S = 24 * 3600
BEGAN_S = 1_700_000_000
Then = tuple[dict[str, Any], tuple[str, ...]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two days. On the second day, `a` is called twice as often, and each call takes four times as
    long.
    """
    api, batch, late = MadeUp("api"), MadeUp("batch"), MadeUp("late")
    found = tmp_path_factory.mktemp("days") / "run.brick"
    known = set[int]()
    with written(found) as recording:
        for day, spans, ticks in ((0, 10, 1_000), (1, 20, 4_000)):
            for n in range(13):
                for made in (api, batch):
                    work(made, "a", *[ticks] * spans)
                work(late if day else api, "new" if day else "old", 50)
                workers = [whole(worker(made, number)) for number, made in enumerate((api, batch, late)[: 2 + day], 1)]
                of = snapshot(*workers, now_ns=(DAY_S * day + 10 * n) * SECOND)
                if (tables := bodies.tables(of, known)) is not None:
                    recording.append(_reader.CHUNK_TABLES, of.at_ns, tables)
                recording.append(_reader.CHUNK_SNAPSHOT, of.at_ns, bodies.snapshot(of, None, bodies.RecordingCounts()))
        recording.close()
    return found


@pytest.fixture
def compared(path: Path) -> Callable[..., Then]:
    def of(*names: str, **period: Any) -> Then:
        with opened([str(path)]) as world:
            found = status.answer(world, StatusQuery(names, against="yesterday", **period))
        return found.document["against"], found.words

    return of


@pytest.mark.parametrize(
    ("period", "began_s", "ended_s"),
    [
        ({}, 60, 120),
        *(
            pytest.param(*each, marks=pytest.mark.ci)
            for each in (
                ({"over": 30.0}, 90, 120),
                ({"over": 100.0}, 20, 120),
                ({"since": BEGAN_S + DAY_S + 20.0, "until": BEGAN_S + DAY_S + 50.0}, 20, 50),
                ({"at": BEGAN_S + DAY_S + 44.0}, 40, 50),
                ({"since": BEGAN_S + DAY_S + 41.0, "until": BEGAN_S + DAY_S + 43.0}, 40, 50),
            )
        ),
    ],
)
def test_a_period_is_compared_with_the_same_time_a_day_earlier(
    period: dict[str, float], began_s: int, ended_s: int, compared: Callable[..., Then]
) -> None:
    against, _ = compared(**period)
    assert (against["from"], against["to"]) == (
        rfc3339((BEGAN_S + began_s) * SECOND), rfc3339((BEGAN_S + ended_s) * SECOND),
    )  # fmt: skip
    assert against["over_ns"] == (ended_s - began_s) * SECOND


def test_rates_and_percentiles_are_compared_and_unknown_ones_have_no_change(compared: Callable[..., Then]) -> None:
    against, words = compared()
    rows = {row["name"]: row for row in against["bricks"]}
    assert [*rows] == ["a", "new", "old"]
    assert (rows["a"]["now"]["count_per_second"], rows["a"]["then"]["count_per_second"]) == (4.0, 2.0)
    changes = rows["a"]["change_percent"]
    assert changes["count_per_second"] == 100
    assert changes["p50_ns"] == pytest.approx(300, rel=0.2)
    assert changes["p99_ns"] == pytest.approx(300, rel=0.2)
    assert (rows["new"]["then"], rows["old"]["now"]) == (None, None)
    assert {*rows["new"]["change_percent"].values(), *rows["old"]["change_percent"].values()} == {None}
    assert words == ("1 brick recorded nothing yesterday", "1 brick recorded something yesterday, but nothing now")


@pytest.mark.ci
def test_only_the_named_services_are_compared(compared: Callable[..., Then]) -> None:
    against, words = compared("batch")
    (row,) = against["bricks"]
    assert (row["name"], row["now"]["count_per_second"], row["then"]["count_per_second"]) == ("a", 2.0, 1.0)
    assert words == ()
    assert compared("late")[1] == ("service late recorded nothing yesterday, so it is not compared",)


@pytest.mark.ci
@pytest.mark.parametrize(("names", "spans", "workers"), [((), 410, 3), (("batch",), 200, 1), (("api", "late"), 210, 2)])
def test_a_period_counts_only_the_named_services(names: tuple[str, ...], spans: int, workers: int, path: Path) -> None:
    with opened([str(path)]) as world:
        document = bricks.answer(world, BricksQuery(names, over=100.0)).document
        assert sum(brick["count"] for brick in document["bricks"]) == spans
        assert document["workers"] == workers
        totals = status.answer(world, StatusQuery(names, over=100.0)).document["bricks"]
        assert sum(brick["count"] for brick in totals) == spans
        roots = [
            node for node in tree.answer(world, TreeQuery(names, over=100.0)).document["nodes"] if not node["depth"]
        ]
        assert sum(node["count"] for node in roots) == spans
        rows = history.answer(world, HistoryQuery(names, over=100.0)).document["slots"]
        assert (sum(row["count"] for row in rows), rows[-1]["workers"]) == (spans, workers)
        for view, query in ((bricks, BricksQuery(("api/1",), over=100.0)), (tree, TreeQuery(("api/1",), over=100.0))):
            with pytest.raises(BrickdError, match="kept by service: api/1 is a worker, expected a service"):
                view.answer(world, query)


def test_a_worker_is_refused_because_yesterday_is_kept_by_service(compared: Callable[..., Then]) -> None:
    with pytest.raises(BrickdError, match="kept by service: api/1 is a worker, expected a service"):
        compared("api/1")


@pytest.mark.ci
def test_a_time_that_is_not_kept_is_named_and_nothing_is_compared(compared: Callable[..., Then]) -> None:
    against, words = compared(since=BEGAN_S + 10.0, until=BEGAN_S + 40.0)
    assert (against["from"], against["over_ns"]) == (None, 0)
    assert {row["then"] for row in against["bricks"]} == {None}
    assert "so nothing is compared" in words[0]


@pytest.mark.parametrize(
    ("asked_s", "slot_s", "covered_s", "longest_s", "why"),
    [
        ((0, 60), (0, 60), 60, 10, None),
        ((0, 60), (0, 70), 60, 10, None),
        ((0, 60), (0, 71), 71, 10, "(1.2 min) is kept"),
        ((0, 60), (11, 60), 49, 10, "(49.0 s) is kept"),
        ((0, 600), (0, 600), 589, 10, "(9.8 min) is kept"),
        ((0, 600), (0, 600), 589, 300, None),
        ((0, 60), (-100, 200), 300, 300, "(5.0 min) is counted, because a slot of that time has 5.0 min"),
        ((60, 60), (-100, 200), 300, 300, None),
        ((60, 60), (0, 3600), 10, 10, "(10.0 s) is kept"),
    ],
)
def test_a_period_that_differs_from_the_one_that_was_asked_for_is_explained(
    asked_s: tuple[int, int], slot_s: tuple[int, int], covered_s: int, longest_s: int, why: str | None
) -> None:
    at_ns = BEGAN_S * SECOND
    began_ns, ended_ns = (at_ns + each * SECOND for each in slot_s)
    found = DaySlot(began_ns, ended_ns, longest_ns=longest_s * SECOND, covered_ns=covered_s * SECOND)
    period = AskedPeriod("asked", *(at_ns + each * SECOND for each in asked_s))
    words = other_period(period, found, at_ns)
    assert [each.partition(":")[0] for each in words] == ([] if why is None else ["asked"])
    assert all(each.endswith(f" {why}") for each in words)


def test_without_a_period_or_a_daemon_there_is_nothing_to_compare(prefix: str) -> None:
    with pytest.raises(WrongQuestion, match="against contradicts over=start"):
        StatusQuery(over="start", against="yesterday")
    assert StatusQuery(over="start", at=5.0, against="yesterday").against == "yesterday"
    with pytest.raises(NoDaemon, match="a comparison with yesterday needs a daemon"):
        status.answer(SharedMemory(), StatusQuery(against="yesterday"))


def test_the_screen_has_a_line_for_each_brick_and_counts_the_others(compared: Callable[..., Then]) -> None:
    against, _ = compared()
    document = {"against": against, "over_ns": 60 * SECOND}
    title, first, second, more = brick_comparison.lines(document, Screen(None, colour=False), 2)
    assert title.startswith("BRICK (against yesterday, ")
    assert first.split() == ["a", "4", "+100", "%", *first.split()[4:]]
    assert second.split()[-1] == "-"
    assert more == "…1 more brick: --json"
