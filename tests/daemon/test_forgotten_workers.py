"""Dead workers can be forgotten by any name that brickd displays, with or without a daemon."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from faults import Start
from forge import golden, segment_of
from running import Running, running
from test_coverage import made_up
from verbs import brickd, document, started

from brickd.analysis.numerics.online_state import Compared, Doubt, ServiceSite
from brickd.base.paths import runtime
from brickd.daemon.daemon import Daemon
from brickd.model.retained_workers import RetainedTotals, RetainedWorker
from brickd.query.orders import Forgetting
from brickd.shm.segment_copy import Reading
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory
from brickd.state.runtime_dir import Home


def read(uuid: str) -> Reading:
    with segment_of(golden()) as segment:
        reading = segment.read()
    header: Any = {**reading.header, "uuid": bytes.fromhex(uuid), "service": b"api"}
    return replace(reading, header=header)


ONE, TWO, THREE = (f"{number:032x}" for number in (1, 2, 3))
BOTH, ODD, ALONE, UNSURE, SURE = (
    ServiceSite("api", kernel, -1) for kernel in ("both", "odd", "alone", "unsure", "sure")
)


def remembered() -> Memory:
    """Return a daemon's memory with a live worker and two dead workers.

    The dead workers contradict themselves, and they differ from the live worker.
    """
    memory = Memory("brickd-", known={ONE: RetainedWorker("api/0")})
    memory.gone = {uuid: RetainedTotals(f"api/{n}", read(uuid)) for n, uuid in ((1, TWO), (2, THREE))}
    lives = {place: made_up(place, uuids=(TWO, ONE)) for place in (BOTH,)}
    lives[BOTH] = lives[BOTH]._replace(outliers={ONE: 1, TWO: 1})
    dead = {ODD: made_up(ODD, uuids=(ONE, TWO)), ALONE: made_up(ALONE, uuids=(ONE, THREE))}
    doubts = {
        UNSURE: Doubt(frozenset({ONE, TWO}), frozenset({ONE, TWO})),
        SURE: Doubt(frozenset({ONE, TWO}), frozenset({TWO})),
    }
    memory.compared = Compared(1, findings=lives | dead, doubts=doubts)
    return memory


def test_merged_workers_have_no_name_of_their_own_but_that_of_their_aggregate() -> None:
    memory = Memory("brickd-")
    for uuid in (ONE, TWO):
        memory.add_up(RetainedTotals(f"api/{uuid[-1]}", read(uuid)))
    assert memory.names() == {}
    assert memory.background().names == {ONE: "api/older"}


def test_forgetting_without_a_daemon_drops_totals_findings_and_doubts_of_the_dead() -> None:
    with Home(runtime()) as home:
        home.keep(checkpoint.encode(remembered()))
        assert home.forget("brickd-") == 2
    left = checkpoint.load(runtime().checkpoint)
    assert left is not None
    assert (list(left.known), list(left.gone)) == ([ONE], [])
    assert {place: each.outliers for place, each in left.compared.findings.items()} == {BOTH: {ONE: 1}}
    assert left.compared.doubts == {UNSURE: Doubt(frozenset({ONE}), frozenset({ONE}))}


def test_forgetting_without_a_daemon_treats_a_worker_without_segment_as_dead() -> None:
    memory = remembered()
    memory.known[ONE].file = (1, 2)
    with Home(runtime()) as home:
        home.keep(checkpoint.encode(memory))
        assert home.forget("brickd-") == 2
    left = checkpoint.load(runtime().checkpoint)
    assert left is not None
    assert (left.known, left.compared.findings, left.compared.doubts) == ({}, {}, {})


def test_a_dry_run_of_a_daemon_counts_what_it_would_forget_and_keeps_it() -> None:
    with Home(runtime()) as home:
        home.keep(checkpoint.encode(replace(remembered(), prefix=os.environ["BRICKD_SHM_PREFIX"])))
        daemon = Daemon(home)
        for _ in range(2):
            assert daemon.orders.forget(Forgetting(dry_run=True)) == 2
        assert daemon.orders.forget(Forgetting()) == 2
        assert daemon.orders.forget(Forgetting(dry_run=True)) == 0


def test_forgetting_one_worker_drops_its_findings_and_keeps_those_of_others() -> None:
    memory = remembered()
    assert memory.forget({TWO}) == 1
    assert list(memory.gone) == [THREE]
    assert {place: each.outliers for place, each in memory.compared.findings.items()} == {
        BOTH: {ONE: 1},
        ALONE: {THREE: 1},
    }
    assert list(memory.compared.doubts) == [UNSURE]


def test_forgetting_a_merged_worker_drops_its_findings() -> None:
    memory = remembered()
    memory.add_up(memory.gone.pop(TWO))
    assert memory.forget({TWO}) == 1
    assert ODD not in memory.compared.findings
    assert ALONE in memory.compared.findings


def until_logged(daemon: Running, kind: str, times: int) -> None:
    daemon.once("/events", lambda answer: [each["kind"] for each in answer["events"]].count(kind) == times)


@pytest.mark.ci
@pytest.mark.parametrize("asked", ["with a daemon", pytest.param("without a daemon", marks=pytest.mark.ci)])
def test_prune_accepts_the_displayed_name_of_a_dead_worker(worker: Start, prefix: str, asked: str) -> None:
    with running() as daemon:
        for ended, number in enumerate((2, 3)):
            one = started(worker, BRICKD_SERVICE="m", BRICKD_WORKER=str(number))
            until_logged(daemon, "worker_found", ended + 1)
            one.go()
            assert one.end() == 0
            until_logged(daemon, "worker_ended", ended + 1)
        if asked == "without a daemon":
            daemon.end()
        started(worker, BRICKD_SERVICE="m", BRICKD_WORKER="2")
        names = [each["name"] for each in document("workers")["workers"]]
        lives, shared, other = names
        assert (lives, shared.partition("~")[0], other) == ("m/2", "m/2", "m/3")
        refused = brickd("prune", "m/2")
        assert (refused.returncode, refused.stderr.count("m/2 is live, expected a worker that ended or died")) == (4, 1)
        assert brickd("prune", "m/7").returncode == 4
        assert brickd("prune", "--refused", shared).returncode == 2
        assert document("prune", "--dry-run", shared)["forgotten"] == 1
        done = document("prune", shared)
        assert (done["forgotten"], done["removed"]) == (1, [])
        assert [each["name"] for each in document("workers")["workers"]] == [lives, other]


@pytest.mark.slow  # slow, because a segment is removed only after five seconds without a change
def test_a_worker_pruned_without_a_daemon_is_not_listed_as_live_later(worker: Start, prefix: str) -> None:
    def known() -> list[str]:
        left = checkpoint.load(runtime().checkpoint)
        assert left is not None
        return [each.name for each in left.known.values()]

    with running() as daemon:
        one = started(worker, BRICKD_SERVICE="m")
        until_logged(daemon, "worker_found", 1)
        daemon.end()
    one.kill()
    assert known() == ["m/0"]
    assert len(document("prune")["removed"]) == 1
    assert known() == []
