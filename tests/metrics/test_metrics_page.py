"""The page of metrics: its figures are equal to those of the views for the same workers."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import ROOT
from faults import Start
from made_up_workers import HOSTILE, MadeUp
from metric_pages import Series, labels, pages_of, parsed, value
from serving import Daemon
from verbs import SPANS, document, started

import brickd
from brickd.datasources.shared_memory import SharedMemory
from brickd.errors import SegmentRefused
from brickd.metrics import families, gauges
from brickd.metrics.exposition import Exposition
from brickd.model.exported_series import ExportedSeries
from brickd.model.workers import Survey, Worker
from brickd.query.queries import BricksQuery, StatusQuery
from brickd.shm.ledger import Ledger
from brickd.shm.removed_workers import RemovedWorker, WorkerCounts
from brickd.views import bricks, status
from brickd.views.problems import Listed


@pytest.fixture
def page(daemon: Daemon) -> Callable[[], Series]:
    pages = pages_of(daemon)
    return lambda: parsed(pages.of(daemon.survey()))


@pytest.mark.ci
def test_counts_and_sums_are_those_of_bricks_and_of_each_worker(
    worker: Start, daemon: Daemon, page: Callable[[], Series]
) -> None:
    for index in ("0", "1"):
        started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER=index)
    started(worker, SPANS, BRICKD_SERVICE="batch", BRICKD_WORKER="0")
    of = page()
    for by in ("service", "worker"):
        for row in bricks.answer(daemon, BricksQuery(by=by)).document["bricks"]:
            where = {"service": row[by].partition("/")[0], "brick": row["name"]}
            where |= {"worker": row["worker"]} if by == "worker" else {}
            name = "brickd_worker_span_seconds" if by == "worker" else "brickd_span_seconds"
            assert value(of, f"{name}_count", **where) == row["count"] == (200 if where == {
                "service": "api", "brick": row["name"]} else 100)  # fmt: skip
            assert value(of, f"{name}_sum", **where) * 1e9 == pytest.approx(row["total_ns"], rel=1e-4, abs=1)


@pytest.mark.ci
def test_the_ledger_the_losses_and_the_states_are_those_of_status(
    worker: Start, daemon: Daemon, page: Callable[[], Series]
) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER="1").kill()
    of, shown = page(), status.answer(daemon, StatusQuery()).document
    for term, count in shown["ledger"]["spans"].items():
        assert value(of, "brickd_ledger_records", service="api", stream="spans", term=term) == count
    streams = {each["stream"] for each in labels(of, "brickd_ledger_records")}
    assert streams == shown["ledger"].keys() - {"lost"}
    for stream, count in shown["ledger"]["lost"].items():
        assert value(of, "brickd_lost_records_total", service="api", stream=stream) == count
    states = [value(of, "brickd_workers", service="api", state=state) for state in ("live", "ended", "died")]
    assert states == [1, 0, 1]
    up = [value(of, "brickd_worker_up", service="api", worker=name) for name in ("api/0", "api/1")]
    assert up == [1, 0]
    about = {"kind": "died", "state": "active", "service": "api", "worker": "api/1"}
    assert labels(of, "brickd_problem") == [about]
    verdicts = {each["evidence"]: each["verdict"] for each in shown["evidence"]}
    found = {each["evidence"]: each["verdict"] for each in labels(of, "brickd_evidence_verdict")}
    assert found == verdicts


@pytest.mark.ci
def test_a_restarted_worker_goes_on_with_the_series_of_its_name(worker: Start, page: Callable[[], Series]) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER="0").kill()
    first = page()
    started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    second = page()
    names = {each["worker"] for each in labels(second, "brickd_worker_span_seconds_count")}
    assert names == {each["worker"] for each in labels(first, "brickd_worker_span_seconds_count")} == {"api/0"}
    assert value(second, "brickd_worker_span_seconds_count", service="api", worker="api/0", brick="gemm") == 100
    assert value(second, "brickd_span_seconds_count", service="api", brick="gemm") == 200
    (problem,) = labels(second, "brickd_problem")
    assert problem["worker"] == "", "the dead one has no series any more"


@pytest.mark.parametrize("name", [HOSTILE, "\ud800", 'a",x="', "a" * 60])
def test_a_hostile_name_of_a_service_breaks_no_line(worker: Start, page: Callable[[], Series], name: str) -> None:
    program = f"brick.init(service={name!r})\nwith brick.span({name!r}): pass\npause()"
    started(worker, program)
    (found,) = labels(page(), "brickd_span_seconds_count")
    assert found["service"].isprintable()


def test_workers_whose_names_look_alike_have_series_of_their_own(worker: Start, daemon: Daemon) -> None:
    for index in "01":
        started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER=index)
    found, alike = daemon.survey(), []
    for each, service in zip(found.workers, ("a\x1b", r"a\x1b"), strict=True):
        header: Any = each.reading.header | {"service": service.encode()}  # the agent writes no such name
        alike.append(each._replace(name=f"{service}/0", reading=replace(each.reading, header=header)))
    of = parsed(pages_of(daemon).of(found._replace(workers=alike)))
    assert value(of, "brickd_span_seconds_count", service=r"a\x1b", brick="gemm") == 200
    assert value(of, "brickd_workers", service=r"a\x1b", state="live") == 2
    names = {each["worker"] for each in labels(of, "brickd_worker_span_seconds_count")}
    assert (len(names), min(names)) == (2, r"a\x1b/0")


def test_a_page_without_workers_has_the_daemon_only(page: Callable[[], Series]) -> None:
    assert {name for name, _ in page() if not name.startswith("brickd_daemon_")} == set()


def test_a_page_names_the_failures_of_the_daemon(daemon: Daemon) -> None:
    pages = pages_of(daemon)
    daemon.checkpoint_problem = "No space left on device"
    of = parsed(pages.of(Survey([], [SegmentRefused("brickd-x", "is empty")])))
    assert value(of, "brickd_daemon_save_failing") == value(of, "brickd_daemon_quarantined_segments") == 1
    assert value(of, "brickd_problem", service="", worker="", kind="daemon", state="active") == 1


def test_silenced_problems_and_those_of_several_workers_are_counted_by_name() -> None:
    about = {"service": "api", "kind": "straggler"}
    active = [
        about | {"workers": ["api/0", "api/1"]},
        about | {"workers": ["api/0", "gone"]},
        about | {"workers": ["gone"]},
    ]
    silenced: list[dict[str, Any]] = [{"service": None, "kind": "daemon", "workers": []}]
    into = Exposition()
    gauges.write_problems(Listed(active, silenced), {"api/0": "api/0", "api/1": "api/1"}, into)
    of = parsed(into.text())
    counts = {worker: value(of, "brickd_problem", **about, worker=worker, state="active") for worker in
              ("api/0", "api/1", "")}  # fmt: skip
    assert counts == {"api/0": 2, "api/1": 1, "": 1}
    assert value(of, "brickd_problem", service="", worker="", kind="daemon", state="silenced") == 1
    assert len(of) == 4


def test_services_whose_labels_are_equal_share_the_worst_verdict() -> None:
    def verdict(service: str, verdict: str, looked_at: int) -> dict[str, Any]:
        return {"service": service, "evidence": "input", "verdict": verdict, "looked_at": looked_at, "compared": 1}

    for order in itertools.permutations(("equal", "diverged", "unproven")):
        into = Exposition()
        one, two = verdict("api\x1b", order[0], 2), verdict(r"api\x1b", order[1], 2)
        gauges.write_evidence([one, two, verdict("x", "equal", 7)], into)
        of = parsed(into.text())
        worst = "diverged" if "diverged" in order[:2] else "unproven"
        assert [each["verdict"] for each in labels(of, "brickd_evidence_verdict")] == [worst, "equal"]
        assert value(of, "brickd_evidence_looked_at", service=r"api\x1b", evidence="input") == 4
        assert value(of, "brickd_evidence_compared", service=r"api\x1b", evidence="input") == 2


def test_a_sum_of_workers_counts_each_and_removed_workers_count_for_their_service() -> None:
    into, older = Exposition(), Worker("api/older", MadeUp("api").reading(), Ledger(), together=3)
    dead: Any = older.reading.process | {"ended": 0}
    older = older._replace(reading=replace(older.reading, pid=None, process=dead))
    gauges.write_workers({"api": [older]}, {}, into)
    removed = [
        RemovedWorker("", "", service, -1, "", 0, 0, 0, True, 1, WorkerCounts(spans=spans))
        for service, spans in (("api", 5), ("batch", 7))
    ]
    gauges.write_ledgers({"api": [older]}, removed, into)
    of = parsed(into.text())
    assert value(of, "brickd_workers", service="api", state="died") == 3
    for each in removed:
        about = {"service": each.service, "stream": "spans", "term": "removed"}
        assert value(of, "brickd_ledger_records", **about) == each.counts.spans


class CountingWorld(SharedMemory):
    """A data source that counts how often its workers are read."""

    def __init__(self) -> None:
        self.surveys = 0

    def survey(self) -> Survey:
        self.surveys += 1
        return super().survey()


def test_many_readers_at_once_cost_one_page(prefix: str) -> None:
    world = CountingWorld()
    pages, found = pages_of(world), []
    readers = [threading.Thread(target=lambda: found.append(pages.newest())) for _ in range(8)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert world.surveys == len(set(found)) == 1


def test_new_series_are_kept_once(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    kept: list[ExportedSeries] = []
    pages = pages_of(SharedMemory(), kept.append)
    for _ in range(3):
        pages.of(SharedMemory().survey())
    assert [set(each.bricks["api"]) for each in kept] == [{("norm", False), ("gemm", False)}]


def test_the_reference_has_each_family_with_its_type_and_labels() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(brickd_\w+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)
    documented = {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == {(each.name, each.type, each.labels) for each in families.FAMILIES}


@pytest.mark.ci
def test_a_page_has_the_counts_of_json_and_of_python(worker: Start, daemon: Daemon) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    of = parsed(pages_of(daemon).newest())
    shown = document("bricks", "--over", "start")["bricks"]
    assert [row["count"] for row in brickd.live().bricks()] == [row["count"] for row in shown]
    for row in shown:
        assert value(of, "brickd_span_seconds_count", service="api", brick=row["name"]) == row["count"]
