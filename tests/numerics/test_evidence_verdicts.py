"""The verdict of a service for each class of evidence (equal, diverged or unproven), and its events."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_up_weights import SECOND, MadeUpWeights, several
from made_up_workers import MadeUp

from brickd.analysis.evidence_news import REPORTED_MAX, About, EvidenceNews
from brickd.analysis.evidence_verdicts import (
    WEIGHTS_WINDOW_NS,
    Comparisons,
    EvidenceVerdict,
    Proof,
    uncompared,
    verdicts,
)
from brickd.analysis.numerics.online_state import Case, Compared, DivergentSite, KeptEvidence, ServiceSite, SiteCounts
from brickd.analysis.numerics.recent_counts import WINDOW_NS, FingerprintCounts, added
from brickd.analysis.weights.monitor import Weighing
from brickd.analysis.weights.scan_times import ScanTimes
from brickd.analysis.weights.verdicts import ComparedWorker, WeightsVerdict
from brickd.base.thresholds import Thresholds
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.screens.health import Bounds, conditions
from brickd.screens.screen import Screen
from brickd.screens.wording import unproven
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import SiteKey
from brickd.shm.sites import Tier
from brickd.state.daemon_state import Memory

NOW = 10 * WINDOW_NS
HERE = ServiceSite("api", "mlp", 3)
IDLE = ("no daemon compares them", "brickd up -d")


def member(name: str = "api/0", *, sites: bool = True, alive: bool = True) -> Worker:
    """Return a worker that never ran, with or without a site."""
    reading = MadeUp(service=name.partition("/")[0]).reading()
    reading = replace(reading, sites=[SiteKey(1, 3, 0)] if sites else [], pid=1 if alive else None)
    return Worker(name, reading, ledger_of(reading))


def counted(counts: FingerprintCounts, service: str = "api", at_ns: int = NOW) -> Compared:
    return Compared(since_ns=1, recent={(service, Tier.TENSORS): added((), at_ns, counts)})


def differing(compared: Compared, service: str = "api") -> Compared:
    case = Case(1, KeptEvidence("a", b"", "", ""), KeptEvidence("b", b"", "", ""))
    place = HERE._replace(service=service)
    found = DivergentSite(place, "ffn", 1, {"a": "api/0", "b": "api/1"}, {"b": 1}, frozenset(), case, case)
    return replace(compared, findings={place: found})


def of(
    compared: Compared | None,
    *workers: Worker,
    weights: list[WeightsVerdict] | None = None,
    now_ns: int | None = NOW,
    idle: tuple[str, str] | None = None,
) -> dict[str, EvidenceVerdict]:
    found = verdicts(Comparisons(compared, weights or [], now_ns, idle), workers or [member()])
    return {each.evidence: each for each in found}


def test_without_a_comparison_the_verdict_is_unproven_with_the_number_alone() -> None:
    found = of(counted(FingerprintCounts(43_503)))["input"]
    assert (found.verdict, found.recorded, found.looked_at, found.compared) == ("unproven", True, 43_503, 0)
    assert found.why == "0 of 43,503 fingerprints had a counterpart"
    assert (dict(found.not_comparable), found.window_ns) == ({"alone": 43_503}, WINDOW_NS)
    assert found.command == "brickd coverage api"


def test_one_comparison_makes_a_class_equal_and_a_finding_makes_it_diverged() -> None:
    one = counted(FingerprintCounts(10, met=1))
    found = of(one)["input"]
    assert (found.verdict, found.compared, found.why, found.command) == ("equal", 1, None, None)
    found = of(differing(one))["input"]
    assert (found.verdict, found.command) == ("diverged", "brickd coverage api")
    assert of(differing(one, "other"))["input"].verdict == "equal"
    assert of(differing(counted(FingerprintCounts(10))))["input"].verdict == "diverged"


def test_a_comparison_more_than_an_hour_ago_proves_nothing() -> None:
    old = counted(FingerprintCounts(10, met=10), at_ns=NOW - WINDOW_NS)
    assert of(old)["input"].why == "no fingerprints in the last 1.0 h"
    assert of(old)["input"].verdict == "unproven"
    everything = replace(
        old, sites={HERE: SiteCounts("ffn", 10, met=10), HERE._replace(service="b"): SiteCounts("", 1)}
    )
    whole = of(everything, now_ns=None)["input"]
    assert (whole.verdict, whole.looked_at, whole.window_ns) == ("equal", 10, None)


def test_reasons_are_counted_and_sorted_by_frequency() -> None:
    found = of(counted(FingerprintCounts(100, without_inputs=20, stateful=50)))["input"]
    assert dict(found.not_comparable) == {"alone": 30, "stateful": 50, "without_inputs": 20}
    assert found.why == (
        "0 of 100 fingerprints compared: 50 of stateful kernels, 30 without a counterpart in another worker,"
        " 20 without inputs"
    )
    assert uncompared("tensor", 3, {"backend": 2}) == "0 of 3 tensors compared: 2 backend"


def test_a_service_without_fingerprints_and_weights_is_unproven_and_unrecorded() -> None:
    found = of(None, member(sites=False), idle=IDLE)
    assert [(each.verdict, each.recorded) for each in found.values()] == [("unproven", False)] * 4
    assert [each.why for each in found.values()] == [
        "none watched",
        "no fingerprints",
        "no rows",
        "no rows with a history",
    ]
    assert list(found) == ["weights", "input", "row", "history"]


def test_without_a_daemon_the_reason_is_that_nothing_compares_fingerprints() -> None:
    found = of(None, idle=IDLE)["input"]
    assert (found.verdict, found.recorded, found.why, found.command) == ("unproven", True, *IDLE)
    kept = of(differing(Compared(1)), idle=IDLE)["input"]
    assert (kept.verdict, kept.why) == ("diverged", None), "the finding of an earlier daemon is still valid"


def test_a_single_fingerprint_without_a_site_counts_as_recorded() -> None:
    assert [of(counted(FingerprintCounts(n)), member(sites=False))["input"].recorded for n in (0, 1)] == [False, True]


def test_each_service_has_its_own_verdicts() -> None:
    compared = counted(FingerprintCounts(3, met=3), "b")
    found = verdicts(Comparisons(compared, [], NOW), [member("a/0"), member("b/0"), member("b/1")])
    assert [(each.service, each.verdict) for each in found if each.evidence == "input"] == [
        ("a", "unproven"),
        ("b", "equal"),
    ]


def weights(weighed: MadeUpWeights) -> EvidenceVerdict:
    return of(None, weights=[weighed.judged()])["weights"]


def test_weights_are_unproven_until_two_workers_have_the_same_tensor() -> None:
    weighed = several("api/0", "api/1", watched=2)
    found = weights(weighed)
    assert (found.verdict, found.recorded, found.why, found.command) == (
        "unproven",
        True,
        "not read yet",
        "brickd weights api",
    )
    weighed.add_weight("api/0", 1)
    found = weights(weighed)
    assert (found.looked_at, found.compared) == (1, 0)
    assert found.why == ("0 of 1 tensor compared: 3 not read yet, 1 without a counterpart in another worker")
    weighed.add_weight("api/1", 1)
    found = weights(weighed)
    assert (found.verdict, found.compared, found.command) == ("unproven", 1, "brickd weights api")
    assert found.why == "api/0 has 2 tensors: 1 compared, 1 not read yet; the same holds for 1 other worker"
    for name in ("api/0", "api/1"):
        weighed.add_weight(name, 5, "other")
    assert weights(weighed).verdict == "equal"
    weighed.add_weight("api/1", 2)
    found = weights(weighed)
    assert (found.verdict, found.command) == ("diverged", "brickd weights api")


def test_weights_with_an_unseen_part_in_any_worker_are_unproven() -> None:
    row = ComparedWorker("api/0", "u", "api", "", 16, 16, 1, 1, ScanTimes(0, 0), 7, compared=16)
    others = {"unread": row._replace(watched=17), "no_room": row._replace(refused=1)}
    rows = {"": row, **others, "unreadable": row._replace(watched=59, unreadable=43)}

    def judged(*of_rows: str) -> EvidenceVerdict:
        workers = tuple(rows[each]._replace(name=f"api/{n}") for n, each in enumerate(of_rows))
        return of(None, weights=[WeightsVerdict("api", workers, 16, 16, (), 0)])["weights"]

    assert judged("", "").verdict == "equal"
    assert judged("", "unread").why == "api/1 has 17 tensors: 16 compared, 1 not read yet"
    assert (
        judged("no_room", "").why
        == "api/0 has 16 tensors: 16 compared, 1 whose records did not fit into the event ring"
    )
    found = judged("unread", "unreadable", "no_room")
    assert (found.verdict, found.looked_at, found.compared) == ("unproven", 16, 16)
    assert found.why == "api/1 has 59 tensors: 16 compared, 43 that cannot be read; the same holds for 2 other workers"
    assert dict(found.not_comparable) == {"unread": 1, "unreadable": 43, "no_room": 1}
    assert found.command == "brickd weights api"


def weighed(times: ScanTimes, known: int = 1) -> ComparedWorker:
    return ComparedWorker("api/0", "u", "api", "", known, known, 1, 1, times, 7, compared=known)


def test_weights_compared_hours_ago_are_unproven() -> None:
    def judged(age_ns: int | None) -> EvidenceVerdict:
        return of(None, weights=[WeightsVerdict("api", (weighed(ScanTimes(age_ns, age_ns)),), 1, 1, (), 0)])["weights"]

    assert judged(WEIGHTS_WINDOW_NS).verdict == "equal"
    late = judged(WEIGHTS_WINDOW_NS + 1)
    assert (late.verdict, late.why, late.command) == (
        "unproven",
        "not compared for 3.0 h",
        "brickd weights api --rescan",
    )
    assert judged(None).verdict == "equal", "the times of ended workers are unknown"


def test_the_window_of_a_slowly_scanned_worker_is_two_scans() -> None:
    row = weighed(ScanTimes(0, 0))

    def judged(age_ns: int, interval_ns: int) -> EvidenceVerdict:
        workers = (row, weighed(ScanTimes(age_ns, age_ns, interval_ns=interval_ns)))
        return of(None, weights=[WeightsVerdict("api", workers, 1, 1, (), 0)])["weights"]

    far = WEIGHTS_WINDOW_NS
    found = judged(2 * far, far)
    assert (found.verdict, found.window_ns) == ("equal", 2 * far)
    assert judged(2 * far + 1, far).verdict == "unproven"
    found = judged(WEIGHTS_WINDOW_NS + 1, WEIGHTS_WINDOW_NS // 3)
    assert (found.verdict, found.window_ns) == ("unproven", WEIGHTS_WINDOW_NS)
    fresh = weighed(ScanTimes(700 * SECOND, 700 * SECOND, every_ns=SECOND))
    both = WeightsVerdict("api", (weighed(ScanTimes(WEIGHTS_WINDOW_NS, WEIGHTS_WINDOW_NS)), fresh), 1, 1, (), 0)
    assert of(None, weights=[both])["weights"].why == "not compared for 11.7 min", (
        "the worker that was read last decides"
    )
    alone = WeightsVerdict("api", (row, row, weighed(ScanTimes(2 * far, 2 * far))._replace(compared=0)), 1, 1, (), 0)
    assert of(None, weights=[alone])["weights"].verdict == "equal", "weights that were not compared have no age"


@pytest.mark.parametrize(("every_s", "interval_s", "window_s"), [(3_600, 0, 7_200), (90, 0, 600), (90, 400, 800)])
def test_the_window_of_a_worker_with_its_own_scan_period_is_two_periods(
    every_s: int, interval_s: int, window_s: int
) -> None:
    times = ScanTimes(0, 0, every_s * SECOND, interval_s * SECOND)

    def judged(age_ns: int) -> EvidenceVerdict:
        row = weighed(times.later(age_ns))
        return of(None, weights=[WeightsVerdict("api", (row,), 1, 1, (), 0)])["weights"]

    found = judged(window_s * SECOND)
    assert (found.verdict, found.window_ns) == ("equal", window_s * SECOND)
    assert judged(window_s * SECOND + 1).verdict == "unproven"
    times = times._replace(rescanned_age_ns=None, at_load=1, interval_ns=WEIGHTS_WINDOW_NS)
    found = judged(WEIGHTS_WINDOW_NS)
    assert (found.verdict, found.window_ns) == ("equal", WEIGHTS_WINDOW_NS), (
        "plans and scans do not matter for weights that are read only at load"
    )
    assert judged(WEIGHTS_WINDOW_NS + 1).verdict == "unproven"


@pytest.mark.parametrize(
    ("age_s", "rescanned_s", "why"),
    [
        (10_800, 600, None),
        (10_800, 601, "not compared for 10.0 min"),
        (10_801, 600, "not compared for 3.0 h"),
        (10_801, 601, "not compared for 3.0 h"),
    ],
)
def test_load_only_tensors_have_a_separate_window(age_s: int, rescanned_s: int, why: str | None) -> None:
    row = weighed(ScanTimes(age_s * SECOND, rescanned_s * SECOND, every_ns=SECOND, at_load=1), known=2)
    found = of(None, weights=[WeightsVerdict("api", (row,), 2, 2, (), 0)])["weights"]
    assert (found.verdict, found.why, found.window_ns) == ("unproven" if why else "equal", why, WEIGHTS_WINDOW_NS)


# ---- events


GRACE_NS = Thresholds().ns("unproven_for")


class News:
    """Collects the events about one service, one snapshot after another."""

    def __init__(self, *workers: Worker, reported: Collection[About] = ()) -> None:
        self.compared, self.kept = Compared(), list[frozenset[About]]()
        self.workers = list(workers) or [member()]
        self.logged: list[tuple[str, str]] = []
        self.thresholds = Thresholds()
        weighing = cast(Weighing, SimpleNamespace(judged=lambda _: []))
        self._news = EvidenceNews(
            lambda: self.compared, weighing, self._tell, lambda: self.thresholds, reported, self.kept.append
        )

    def _tell(self, kind: str, text: str, **more: str | None) -> None:
        assert (more["service"], more["command"]) == ("api", "brickd coverage api")
        self.logged.append((kind, text))

    def take(self, after_ns: int, counts: FingerprintCounts | None = None) -> None:
        if counts is not None:
            self.compared = counted(counts)
        self._news.take(Snapshot(after_ns, NOW, Survey(self.workers, [])))


UNPROVEN = ("evidence_unproven", "outputs of api are unproven: 0 of 9 fingerprints had a counterpart")
PROVEN = ("evidence_proven", "outputs of api are proven equal again: 2 fingerprints compared")


def test_unproven_and_proven_again_are_each_reported_once() -> None:
    news = News()
    news.take(0, FingerprintCounts(9))
    news.take(GRACE_NS - 1)
    assert news.logged == []
    for after_ns in (GRACE_NS, 2 * GRACE_NS, 3 * GRACE_NS):
        news.take(after_ns)
    assert news.logged == [UNPROVEN]
    for after_ns in (4 * GRACE_NS, 5 * GRACE_NS):
        news.take(after_ns, FingerprintCounts(11, met=2))
    assert news.logged == [UNPROVEN, PROVEN]
    news.take(6 * GRACE_NS, FingerprintCounts(9))
    news.take(7 * GRACE_NS)
    assert news.logged == [UNPROVEN, PROVEN, UNPROVEN]


@pytest.mark.parametrize(("tier", "called"), [(Tier.ROWS, "rows"), (Tier.HISTORY, "histories")])
def test_rows_and_histories_have_events_of_their_own(tier: Tier, called: str) -> None:
    news = News(member(sites=False))
    for after_ns, counts in ((0, 9), (GRACE_NS, 0), (GRACE_NS + 1, 2)):
        recent = added(news.compared.recent.get(("api", tier), ()), NOW, FingerprintCounts(counts, met=counts & 2))
        news.compared = Compared(since_ns=1, recent={("api", tier): recent})
        news.take(after_ns)
    assert news.logged == [
        ("evidence_unproven", f"{called} of api are unproven: 0 of 9 rows had a counterpart"),
        ("evidence_proven", f"{called} of api are proven equal again: 2 rows compared"),
    ]


def test_a_comparison_within_the_time_limit_resets_it_without_an_event() -> None:
    news = News()
    news.take(0, FingerprintCounts(9))
    news.take(1, FingerprintCounts(11, met=2))
    news.take(GRACE_NS, FingerprintCounts(9))
    news.take(2 * GRACE_NS - 1)
    assert news.logged == []
    news.thresholds = Thresholds(unproven_for=1)
    news.take(2 * GRACE_NS - 1)
    assert news.logged == [UNPROVEN], "the current threshold applies"


def test_a_new_daemon_reports_only_that_a_known_unproven_class_is_proven() -> None:
    before = News()
    before.take(0, FingerprintCounts(9))
    before.take(GRACE_NS)
    before.take(2 * GRACE_NS)
    (kept,) = before.kept
    memory = Memory.of(json.loads("".join(Memory("test-", unproven=kept).pieces())))
    assert memory.unproven == kept == {("api", "input")}
    heir = News(reported=memory.unproven)
    heir.take(0, FingerprintCounts(9))
    heir.take(GRACE_NS)
    assert (heir.logged, heir.kept) == ([], [])
    heir.take(2 * GRACE_NS, FingerprintCounts(11, met=2))
    assert (heir.logged, heir.kept) == ([PROVEN], [frozenset()])


def test_an_older_state_has_reported_nothing_and_the_saved_set_is_bounded() -> None:
    document = json.loads("".join(Memory("test-").pieces()))
    del document["unproven"]
    assert Memory.of(document).unproven == frozenset()
    many = frozenset((str(n), "input") for n in range(REPORTED_MAX + 1))
    assert len(Memory.of(json.loads("".join(Memory("test-", unproven=many).pieces()))).unproven) == REPORTED_MAX


def test_a_class_that_diverges_after_unproven_is_not_called_proven() -> None:
    news = News()
    news.take(0, FingerprintCounts(9))
    news.take(GRACE_NS)
    news.compared = differing(news.compared)
    news.take(2 * GRACE_NS)
    news.take(3 * GRACE_NS, FingerprintCounts(11, met=2))
    assert news.logged == [UNPROVEN]


def test_services_that_record_nothing_or_ended_are_not_reported() -> None:
    for workers in ([member(sites=False)], [member(alive=False)]):
        news = News(*workers)
        news.take(0)
        news.take(GRACE_NS)
        assert news.logged == []
    news = News()
    news.take(0, FingerprintCounts(9))
    news.take(GRACE_NS)
    news.workers = [member(alive=False)]
    news.take(2 * GRACE_NS)
    news.workers = [member()]
    news.take(3 * GRACE_NS, FingerprintCounts(11, met=2))
    assert news.logged == [UNPROVEN]


# ---- status --check


def status(**more: Any) -> dict[str, Any]:
    proofs = [
        EvidenceVerdict("api", "weights", "equal"),
        EvidenceVerdict("api", "input", "unproven", why="no daemon compares them", command="brickd up -d"),
        EvidenceVerdict("api", "row", "unproven", why="no rows"),
        EvidenceVerdict("b", "weights", "diverged", command="brickd weights b"),
        EvidenceVerdict("b", "input", "equal"),
    ]
    worker = {"lost": 0, "together": 1, "set": None, "drained": True}
    return {
        "workers": [{**worker, "service": "api", "state": "live"}, {**worker, "service": "b", "state": "live"}],
        "evidence": [each.document() for each in proofs],
        "daemon": None, "diverged": None, "weights": None, "stragglers": None, "judged_age_ns": None,
        "removed": {"unasked_spans": 0}, "ledger": {"lost": {"spans": 0, "details": 0, "events": 0}},
        "alarms": None, "waiting": None,
    } | more  # fmt: skip


def judged(status_document: Mapping[str, Any], **bounds: Any) -> dict[str, tuple[bool, str, str | None]]:
    found = conditions(dict(status_document), None, Bounds(**bounds))
    return {each.name: (each.healthy, each.seen, each.command) for each in found}


def test_a_required_class_fails_the_check_if_unproven_or_diverged() -> None:
    found = judged(status(), require=("weights", "outputs", "row"))
    assert found["require weights"] == (False, "weights diverged in b", "brickd weights b")
    assert found["require outputs"] == (False, "outputs unproven in api (no daemon compares them)", "brickd up -d")
    assert found["require row"] == (False, "row unproven in api (no rows)", "brickd version")
    assert not [name for name in judged(status()) if name.startswith("require")]


def test_a_required_class_passes_the_check_if_equal_in_each_live_service() -> None:
    status_document = status()
    status_document["workers"][0]["state"] = "ended"
    assert judged(status_document, require=("outputs",))["require outputs"] == (
        True,
        "outputs equal in 1 service",
        None,
    )
    status_document["workers"][1]["state"] = "ended"
    assert not judged(status_document, require=("outputs",))["require outputs"][0], (
        "if no worker is live, all services count"
    )


def test_outputs_are_proven_by_rows_alone_and_diverge_by_any_class() -> None:
    status_document = status()
    del status_document["workers"][1]
    by_row = next(e for e in status_document["evidence"] if (e["service"], e["evidence"]) == ("api", "row"))
    for verdict, healthy in (("equal", True), ("diverged", False), ("unproven", False)):
        by_row["verdict"] = verdict
        found = judged(status_document, require=("outputs",))["require outputs"]
        assert (found[0], verdict in found[1]) == (healthy, True)


@pytest.mark.parametrize(("verdict", "healthy"), [("equal", True), ("diverged", False), ("unproven", False)])
def test_outputs_are_proven_by_histories_alone_and_diverge_by_them(verdict: Proof, *, healthy: bool) -> None:
    by_history = EvidenceVerdict("api", "history", verdict, why="no rows with a history").document()
    status_document = status()
    status_document["evidence"].append(by_history)
    del status_document["workers"][1]
    found = judged(status_document, require=("outputs", "history"))
    assert [found[f"require {each}"][0] for each in ("outputs", "history")] == [healthy, healthy]


def test_a_screen_names_unproven_histories_if_they_are_recorded_even_beside_proven_outputs() -> None:
    def lines(history: Proof, outputs: Proof, *, recorded: bool = True) -> list[str]:
        rows = [
            EvidenceVerdict("api", "weights", "equal", recorded=True),
            EvidenceVerdict("api", "input", outputs, recorded=True, why="alone", command="brickd coverage api"),
            EvidenceVerdict("api", "row", "unproven", why="no rows", command="brickd coverage api"),
            EvidenceVerdict("api", "history", history, recorded=recorded, why="evicted", command="brickd coverage api"),
        ]
        return unproven([each.document() for each in rows], {"source": "daemon"}, Screen(None, False))

    assert lines("unproven", "equal") == ["unproven  api: histories (evicted)  brickd coverage api"]
    assert lines("unproven", "equal", recorded=False) == []
    assert lines("unproven", "unproven") == ["unproven  api: outputs (alone), histories (evicted)  brickd coverage api"]
    assert lines("equal", "unproven") == [], "histories prove the outputs"
    assert lines("diverged", "unproven") == []


def test_further_unproven_services_are_counted_after_the_first() -> None:
    status_document = status()
    status_document["evidence"][4]["verdict"] = "unproven"
    seen = judged(status_document, require=("outputs",))["require outputs"][1]
    assert seen == "outputs unproven in api (no daemon compares them) and in 1 more service"


@pytest.mark.parametrize("allow", [False, True])
def test_without_workers_the_check_fails_unless_that_is_allowed(*, allow: bool) -> None:
    found = judged(status(workers=[], evidence=[]), allow_empty=allow, require=("weights",))
    assert found["workers"] == (allow, "no worker", None if allow else "brickd doctor")
    assert found["require weights"][:2] == (True, "no service that has weights")
    assert judged(status(), allow_empty=allow)["workers"][:2] == (True, "2 workers")
