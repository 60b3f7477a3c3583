"""Differences between running workers are reported once, with the outlier and the evidence."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from checked_record import CheckedRecord, Tensor
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.numerics import online_codec
from brickd.analysis.numerics.announce import command, headlines, judged
from brickd.analysis.numerics.blame import Blame, NotFinite
from brickd.analysis.numerics.comparison import EvidenceClass, Party, compare
from brickd.analysis.numerics.coverage import SiteState, state_of
from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import FingerprintProducer, Numerics
from brickd.analysis.numerics.online_state import (
    ALL_EVIDENCE_MAX,
    EVIDENCE_MAX,
    FINDINGS_MAX,
    SITES_MAX,
    WORKERS_MAX,
    Case,
    Compared,
    DivergentSite,
    ServiceSite,
    SiteCounts,
)
from brickd.analysis.numerics.online_state import KeptEvidence as Fingerprint
from brickd.analysis.numerics.place_state import judge_group
from brickd.analysis.numerics.watch import Watch
from brickd.analysis.numerics.watch_round import Roll
from brickd.analysis.problem import problem_id
from brickd.model.step_texts import StepTexts
from brickd.model.worker_names import KnownNames
from brickd.shm import _reader, records
from brickd.shm.sites import WorkerNames
from brickd.state.daemon_state import Memory
from brickd.views.finding_document import finding

GOOD, BAD, WORSE = Tensor(1), Tensor(2, sketch=(0.25, *(0.0,) * 15)), Tensor(3, sketch=(0.5, *(0.0,) * 15))
KERNELS = 200
TABLES = WorkerNames(
    [None, *((f"k{n}", 0) for n in range(1, KERNELS))], [None, *((n, 3, 0) for n in range(1, KERNELS))]
)


class Service:
    """Workers of a service that send given records, and the `Watch` that compares them."""

    def __init__(
        self,
        workers: int = 0,
        before: Compared | None = None,
        bytes_max: int = 1 << 20,
        numerics: Numerics | None = None,
    ) -> None:
        self.numerics = numerics or Numerics(bytes_max)
        self.logged = list[tuple[str, str, Mapping[str, Any]]]()
        self.watch = Watch(self.numerics, lambda kind, text, **of: self.logged.append((kind, text, of)), before)
        self.workers = [self.worker(f"u{n}") for n in range(workers)]

    def worker(
        self, uuid: str, tables: WorkerNames = TABLES, service: str = "api", shard: str = ""
    ) -> FingerprintProducer:
        return self.numerics.producer(uuid, service, lambda: tables, shard)

    def send(self, *outputs: Tensor, site: int = 1, given: int = 7, times: int = 1, **more: int) -> None:
        """Let each worker send its own output for the same input."""
        for worker, output in zip(self.workers, outputs, strict=False):
            worker.receive(CheckedRecord(output, (Tensor(given),), site=site, **more).slots() * times)  # type: ignore[arg-type]

    def look(self) -> Compared:
        names = {worker.uuid: f"api/{n}" for n, worker in enumerate(self.workers)}
        return self.watch.look(lambda: Roll(names, {worker.service for worker in self.workers}, names))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, *_ in self.logged]


HERE = ServiceSite("api", "k1", 3)
DIFFERS = problem_id("numbers", "api")


@pytest.mark.ci
def test_both_of_two_bad_workers_at_one_site_are_found() -> None:
    service = Service(5, bytes_max=1 << 24)
    for first in range(0, 1_000, 100):
        for number in range(first, first + 90):
            service.send(BAD, GOOD, GOOD, GOOD, GOOD, given=number)
        for number in range(first + 90, first + 100):
            service.send(GOOD, BAD, GOOD, GOOD, GOOD, given=number)
        service.look()
    (finding,) = service.watch.compared.findings.values()
    assert set(finding.outliers) == {"u0", "u1"}


def test_recalling_evidence_does_not_change_the_judgement() -> None:
    service = Service(2, bytes_max=1)  # the smallest window
    service.send(GOOD, BAD)
    service.look()
    for number in range(100, 300):
        service.send(GOOD, GOOD, site=2, given=number)
    compared = service.look()
    before = {each.uuid: (each.number, each.newest.tensors) for each in service.workers}
    shards = dict.fromkeys(("u0", "u1", "gone"), "")
    about = service.numerics.about(shards.keys())
    recall(about, compared, shards)
    assert about.fingerprints.end == service.numerics.fingerprints.end - service.numerics.fingerprints.first + 2
    assert {each.uuid: (each.number, each.newest.tensors) for each in service.workers} == before
    assert [each.newest.tensors for each in about.producers.values()] == [
        about.fingerprints.end - 1,
        about.fingerprints.end,
    ]
    assert list(service.numerics.producers) == ["u0", "u1"]


def test_two_different_workers_disagree_and_are_reported_once() -> None:
    service = Service(2)
    service.send(GOOD, BAD)
    found = service.look().findings[HERE]
    assert (found.cases, dict(found.outliers), dict(found.workers)) == (1, {}, {"u0": "api/0", "u1": "api/1"})
    assert (found.first.against.worker, found.first.other.worker) == ("u0", "u1")
    assert service.logged == [
        (
            "diverged",
            "api/0 and api/1 disagree: k1 layer 3, relative error 0.25; its inputs were equal",
            {"service": "api", "worker": None, "command": "brickd diff api/0 api/1", "problem": DIFFERS},
        )
    ]
    service.send(GOOD, BAD, given=8)
    found = service.look().findings[HERE]
    assert (found.cases, found.first == found.newest, service.kinds) == (2, False, ["diverged"])


def test_a_repeated_case_is_counted_once() -> None:
    service = Service(3)
    service.send(GOOD, BAD, GOOD)
    cases = []
    for _ in range(6):
        cases.append(service.look().findings[HERE].cases)
        service.workers[0].receive(CheckedRecord(GOOD, (Tensor(7),)).slots())
    assert cases == [1] * 6


def test_restarting_a_bad_machine_does_not_clear_its_finding() -> None:
    service = Service(3)
    for life in range(12):
        service.workers[2] = service.worker(f"life{life}")
        service.send(GOOD, GOOD, BAD, given=100 + life)
        found = service.look().findings[HERE]
        assert f"life{life}" in found.outliers
        assert not {"u0", "u1"} & found.outliers.keys()
    assert "diverged_withdrawn" not in service.kinds


def test_a_new_outlier_is_reported_at_a_site_with_a_known_one() -> None:
    service = Service(6)
    for site in range(1, 10):
        service.send(GOOD, BAD, GOOD, GOOD, GOOD, GOOD, site=site)
    service.look()
    service.send(GOOD, BAD, WORSE, GOOD, GOOD, GOOD, site=20)
    service.look()
    assert any(text.startswith("api/2 differs from the others: k20") for _, text, _ in service.logged)


def test_shards_are_compared_only_with_their_own() -> None:
    service = Service()
    service.workers = [service.worker(f"u{n}", shard=f"tp{n % 2}") for n in range(6)]
    service.send(GOOD, BAD, GOOD, BAD)
    assert (service.look().findings, service.kinds) == ({}, [])
    service.send(GOOD, BAD, GOOD, BAD, GOOD, WORSE)
    assert service.look().findings[HERE].outliers == {"u5": 1}


def test_the_majority_of_three_names_the_outlier_in_any_order() -> None:
    for order in ((GOOD, BAD, GOOD), (BAD, GOOD, GOOD), (GOOD, GOOD, BAD)):
        service = Service(3)
        service.send(*order)
        found = service.look().findings[HERE]
        outlier_name = f"u{order.index(BAD)}"
        assert (found.outliers, found.newest.other.worker) == ({outlier_name: 1}, outlier_name)
        assert service.logged[0][1].startswith(f"api/{outlier_name[1]} differs from the others: k1 layer 3")
        assert service.logged[0][2]["worker"] == f"api/{outlier_name[1]}"


def test_a_tie_is_reported_with_the_number_of_groups() -> None:
    service = Service(4)
    service.send(GOOD, GOOD, BAD, BAD)
    service.look()
    assert service.logged[0][1].startswith("api/0 and api/3 disagree, no majority among 4 workers: k1 layer 3")


def test_a_case_is_counted_once_however_many_workers_confirm_it() -> None:
    service = Service(8)
    for given_ in range(5):
        service.send(GOOD, BAD, *(GOOD,) * 6, given=given_)
        service.look()
    service.workers.append(service.worker("late"))
    service.send(*(GOOD,) * 9, given=4)  # the last worker to send showed an old case in the same comparison
    found = service.look().findings[HERE]
    assert found.outliers == {"u1": 5}


def test_a_third_worker_decides_between_two() -> None:
    service = Service(2)
    service.send(BAD, GOOD)
    assert service.look().findings[HERE].outliers == {}
    service.workers.append(service.worker("u2"))
    service.workers[2].receive(CheckedRecord(GOOD, (Tensor(7),)).slots())
    found = service.look().findings[HERE]
    assert (found.cases, found.outliers) == (1, {"u0": 1})
    assert [(kind, of["worker"]) for kind, _, of in service.logged] == [("diverged", None), ("diverged_more", "api/0")]


def test_the_evidence_of_a_look_prefers_a_case_with_a_majority() -> None:
    service = Service(2)
    service.send(GOOD, BAD)
    service.send(GOOD, WORSE, given=8)
    assert service.look().findings[HERE].newest.other.slots == CheckedRecord(BAD, (Tensor(7),)).slots()
    service.workers.append(service.worker("u2"))
    service.send(GOOD, BAD, given=9)  # only two workers send
    service.send(GOOD, WORSE, GOOD, given=10)
    service.send(GOOD, BAD, GOOD, given=11)
    assert service.look().findings[HERE].newest.other.slots == CheckedRecord(WORSE, (Tensor(10),)).slots()


def test_a_second_outlier_is_reported_when_it_joins() -> None:
    service = Service(5)
    service.send(GOOD, BAD, GOOD, GOOD, GOOD)
    service.look()
    service.send(GOOD, GOOD, BAD, GOOD, GOOD, given=8)
    assert service.look().findings[HERE].outliers == {"u1": 1, "u2": 1}
    assert [(kind, of["worker"]) for kind, _, of in service.logged] == [
        ("diverged", "api/1"),
        ("diverged_more", "api/2"),
    ]


@pytest.mark.ci
def test_healthy_workers_raise_no_alarm() -> None:
    service = Service(4)
    for given_ in range(300):
        service.send(*(Tensor(given_ + 1),) * 4, given=given_, site=given_ % 50 + 1)
    found = service.look()
    assert (found.findings, found.unlooked, service.logged) == ({}, 0, [])
    assert sum(counts.met for counts in found.sites.values()) == 1200


@pytest.mark.nightly
def test_a_million_fingerprints_of_healthy_workers_raise_no_alarm() -> None:
    service = Service(8, bytes_max=64 << 20)
    record = np.frombuffer(CheckedRecord(GOOD, (Tensor(7),)).slots(), np.uint8)
    for batch in range(250):
        rows = np.tile(record, (500, 1))
        numbers = np.arange(batch * 500, batch * 500 + 500, dtype=np.uint64)
        rows[:, 8:12] = (numbers % (KERNELS - 1) + 1).astype(np.uint32).view(np.uint8).reshape(-1, 4)
        for at in (128, 256):  # the byte offsets of the checksums of the output and of the input
            rows[:, at : at + 8] = numbers.view(np.uint8).reshape(-1, 8)
        for each in service.workers:
            each.receive(rows.tobytes())
    found = service.look()
    assert (found.findings, found.doubts, found.unlooked, service.logged) == ({}, {}, 0, [])
    assert sum(counts.met for counts in found.sites.values()) == 1_000_000


def test_if_most_workers_contradict_themselves_no_outlier_is_named() -> None:
    service = Service(2)
    for output in range(4):
        service.send(Tensor(10 + output), Tensor(20 + output), given=7)
    found = service.look()
    assert (found.findings, service.kinds) == ({}, [])
    both = frozenset(("u0", "u1"))
    assert {place: doubt[:2] for place, doubt in found.doubts.items()} == {HERE: (both, both)}
    service.send(GOOD, BAD, given=8)
    assert service.look().findings == {}


def test_a_finding_at_an_unrepeatable_kernel_is_withdrawn() -> None:
    service = Service(2)
    service.send(GOOD, BAD)
    service.look()
    service.send(BAD, GOOD)
    found = service.look()
    assert (found.findings, list(found.doubts)) == ({}, [HERE])
    assert service.kinds == ["diverged", "diverged_withdrawn"]


def test_a_single_self_contradicting_worker_is_named_once_the_other_repeats() -> None:
    service = Service(2)
    service.send(GOOD, GOOD)
    service.workers[1].receive(CheckedRecord(BAD, (Tensor(7),)).slots())
    assert service.look().findings == {}
    service.send(GOOD)
    service.workers[1].receive(CheckedRecord(BAD, (Tensor(7),)).slots())
    found = service.look().findings[HERE]
    assert (dict(found.outliers), set(found.contradict)) == ({"u1": 1}, {"u1"})
    assert "api/1 contradicts itself: k1 layer 3" in service.logged[0][1]


@pytest.mark.ci
def test_a_self_contradicting_worker_among_equal_ones_is_named() -> None:
    service = Service(8)
    for given_ in range(100, 300):
        service.send(*(GOOD,) * 8, given=given_)
    for output in (GOOD, BAD):
        service.workers[3].receive(CheckedRecord(output, (Tensor(9),)).slots())
    found = service.look()
    assert (found.findings[HERE].outliers, found.doubts) == ({"u3": 1}, {})
    assert service.logged == [
        (
            "diverged",
            "api/3 contradicts itself: k1 layer 3, relative error 0.25; its inputs were equal",
            {"service": "api", "worker": "api/3", "command": "brickd coverage api", "problem": DIFFERS},
        )
    ]
    for output in (GOOD, BAD):
        service.workers[5].receive(CheckedRecord(output, (Tensor(10),)).slots())
    assert service.look().findings[HERE].outliers == {"u3": 1, "u5": 1}
    assert service.kinds == ["diverged", "diverged_more"]


def test_a_self_contradiction_is_decided_once_others_are_seen_to_agree() -> None:
    service = Service(3)
    for output in (GOOD, BAD):
        service.workers[1].receive(CheckedRecord(output, (Tensor(9),)).slots())
    found = service.look()
    assert (list(found.doubts), found.findings, service.logged) == ([HERE], {}, [])
    heir = Service(3, again(found))
    for given_ in range(100, 200):
        heir.send(*(GOOD,) * 3, given=given_)
    found = heir.look()
    assert (found.doubts, found.findings[HERE].outliers, heir.kinds) == ({}, {"u1": 1}, ["diverged"])


def test_two_self_contradicting_workers_remove_no_finding_of_others() -> None:
    service = Service(8)
    for given_ in range(100, 120):
        service.send(*(GOOD,) * 7, BAD, given=given_)
    assert list(service.look().findings[HERE].outliers) == ["u7"]
    for worker in service.workers[:2]:
        for output in (GOOD, BAD):
            worker.receive(CheckedRecord(output, (Tensor(9 + worker.number),)).slots())
    assert HERE in service.look().findings
    assert service.kinds == ["diverged"]


def test_if_outliers_alternate_no_outlier_is_named() -> None:
    service = Service(3)
    for given_, outputs in enumerate(((GOOD, BAD, GOOD), (GOOD, GOOD, BAD), (BAD, GOOD, GOOD), (GOOD, BAD, GOOD))):
        service.send(*outputs, given=given_)
        found = service.look()
    assert (found.findings, list(found.doubts), service.kinds) == ({}, [HERE], ["diverged", "diverged_withdrawn"])


def test_nan_in_only_one_worker_is_reported() -> None:
    service = Service(2)
    service.send(GOOD, Tensor(5, nan=3))
    found = service.look().findings[HERE]
    reported = judged(found.place, found.category, found.first)
    assert reported is not None
    assert (reported.judgement.not_finite, reported.judgement.blame) == (NotFinite.BORN, Blame.CULPRIT)
    assert "NaN or infinite" in service.logged[0][1]


def test_a_bit_difference_invisible_in_the_sketch_is_reported() -> None:
    service = Service(2)
    for given_ in (1, 2):
        service.send(GOOD, GOOD, given=given_)
    service.send(GOOD, Tensor(2))
    service.look()
    assert service.logged[0][1].endswith("k1 layer 3, relative error <1e-6 (rounding); its inputs were equal")


def test_workers_are_not_compared_where_a_cache_is_read() -> None:
    service = Service()
    tables = WorkerNames([None, ("scores", 2), ("attention", 0)], [None, (1, 0, 0)])
    service.workers = [service.worker(uuid, tables) for uuid in ("u0", "u1")]
    service.send(GOOD, BAD)
    found = service.look()
    assert (found.findings, found.doubts, found.unlooked, service.logged) == ({}, {}, 0, [])
    assert found.sites[ServiceSite("api", "scores", 0)] == SiteCounts("attention", fingerprints=2, stateful=2)


def test_the_hosts_word_on_state_overrides_the_kernels_name() -> None:
    service = Service()
    tables = WorkerNames([None, ("scores", 2), ("attention", 0)], [None, (1, 0, 0)])
    service.workers = [service.worker(uuid, tables) for uuid in ("u0", "u1")]
    service.send(GOOD, BAD, flags=_reader.CHECKED_STATELESS)
    assert list(service.look().findings) == [ServiceSite("api", "scores", 0)]
    service = Service(2)
    service.send(GOOD, BAD, flags=_reader.CHECKED_STATEFUL)
    found = service.look()
    assert (found.findings, found.sites[HERE]) == ({}, SiteCounts("other", fingerprints=2, stateful=2))


def test_a_site_is_the_same_whatever_its_category_in_each_worker() -> None:
    service = Service()
    for uuid, category in (("u0", 2), ("u1", 0)):
        tables = WorkerNames([None, ("mix", category), ("attention", 0)], [None, (1, 0, 0)])
        service.workers.append(service.worker(uuid, tables))
    service.send(GOOD, BAD)
    assert service.look().sites == {ServiceSite("api", "mix", 0): SiteCounts("other", fingerprints=2, stateful=1)}


PLAIN, ATTENTION = (WorkerNames([None, ("block", of), ("attention", 0)], [None, (1, 0, 0)]) for of in (0, 2))
BLOCK = ServiceSite("api", "block", 0)


@pytest.mark.parametrize("of", ["api", "other"])
def test_a_worker_with_another_kernel_name_does_not_block_others(of: str) -> None:
    service = Service()
    service.workers = [service.worker("wrong", ATTENTION, of), *(service.worker(uuid, PLAIN) for uuid in ("u0", "u1"))]
    service.send(GOOD, GOOD, BAD)
    finding = service.look().findings[BLOCK]
    assert (set(finding.workers), finding.category) == ({"u0", "u1"}, "other")
    found = judged(BLOCK, finding.category, finding.first)
    assert found is not None
    assert found.judgement.blame is Blame.CULPRIT


@pytest.mark.ci
def test_a_compared_case_stays_comparable_when_recalled() -> None:
    service = Service(bytes_max=1)
    service.workers = [service.worker("u0", ATTENTION), service.worker("u1", PLAIN)]
    service.workers[0].receive(CheckedRecord(BAD, (Tensor(7),), flags=_reader.CHECKED_STATELESS).slots())
    service.workers[1].receive(CheckedRecord(GOOD, (Tensor(7),)).slots())
    service.look()
    service.workers[1].receive(b"".join(CheckedRecord(GOOD, (Tensor(n),)).slots() for n in range(100, 1100)))
    compared, about = service.look(), service.numerics.about({"u0", "u1"})
    recall(about, compared, {"u0": "", "u1": ""})
    reported = compare(about, [Party(uuid, each.number) for uuid, each in about.producers.items()], EvidenceClass.INPUT)
    assert (reported.compared, reported.diverged) == (1, 1)


@pytest.mark.ci
def test_evidence_outlives_the_window() -> None:
    service = Service(2, bytes_max=1)
    service.send(GOOD, BAD)
    service.look()
    service.workers[0].receive(b"".join(CheckedRecord(GOOD, (Tensor(n),)).slots() for n in range(100, 1100)))
    found = service.look()
    assert service.numerics.fingerprints.read(0) is None
    assert found.held == 1024 // 6
    case = found.findings[HERE].first
    assert case.other.slots == CheckedRecord(BAD, (Tensor(7),), site=1).slots()


@pytest.mark.ci
def test_differences_evicted_before_a_look_are_counted() -> None:
    service = Service(2, bytes_max=1)
    service.send(GOOD, BAD)
    service.workers[0].receive(b"".join(CheckedRecord(GOOD, (Tensor(n),)).slots() for n in range(100, 1100)))
    found = service.look()
    assert (found.findings, found.unlooked) == ({}, 1)


@pytest.mark.ci
def test_many_differences_of_one_worker_do_not_hide_another_worker() -> None:
    service = Service(3)
    for site in range(1, 101):
        service.send(GOOD, BAD, GOOD, site=site)
        service.look()
    logged = len(service.logged)
    for given_ in range(20):
        for site in range(101, 121):
            service.send(GOOD, GOOD, BAD, site=site, given=given_)
    while service.look().unlooked > 20 * 20 * 2:
        service.send(GOOD, GOOD, GOOD, given=99, site=150)
    found = service.look()
    assert (len(found.findings), found.unkept) == (120, {})
    of_u2 = [each for each in found.findings.values() if each.named == ["u2"]]
    assert {each.place.kernel for each in of_u2} == {f"k{site}" for site in range(101, 121)}
    assert next(kind for kind, _, of in service.logged[logged:] if of["worker"] == "api/2") == "diverged"
    assert len(service.logged[:logged]) < 20
    kept = [each for each in found.findings.values() if each.newest.whole]
    assert len(kept) == EVIDENCE_MAX
    assert of_u2[0].first.whole
    assert found.findings[HERE].first.whole, "the first finding is dropped last"


@pytest.mark.ci
def test_a_dropped_finding_is_counted_at_its_service() -> None:
    outlier_name = ("u0", "u2")
    case = Case(1, *(Fingerprint(worker, b"", "", "") for worker in outlier_name))
    names = {worker: f"api/{worker[1]}" for worker in outlier_name}
    places = [ServiceSite("api", f"old {n}", 3) for n in range(FINDINGS_MAX)]
    findings = {place: DivergentSite(place, "other", 1, names, {"u2": 1}, frozenset(), case, case) for place in places}
    service = Service(3, Compared(findings=findings))
    service.send(GOOD, GOOD, BAD)
    found = service.look()
    assert (found.unkept, HERE in found.findings) == ({"api": 1}, False)
    service.workers += [service.worker(f"w{n}", service="web") for n in range(3)]
    service.send(GOOD, GOOD, GOOD, GOOD, GOOD, BAD, site=2)
    found = service.look()
    assert (found.unkept, ServiceSite("web", "k2", 3) in found.findings) == ({"api": 2}, True)
    assert (len(found.findings), places[-1] in found.findings) == (FINDINGS_MAX, False)


def test_a_worker_is_reported_at_up_to_eight_sites_and_then_counted() -> None:
    service = Service(3)
    for sites in (range(1, 31), range(31, 32), range(32, 65)):
        for site in sites:
            service.send(GOOD, BAD, GOOD, site=site)
        service.look()
    assert service.kinds == ["diverged"] * 8 + ["diverged_more"] * 2
    assert service.logged[8][1] == "api/1 differs from the others at 30 sites so far"
    assert service.logged[9] == (
        "diverged_more",
        "api/1 differs from the others at 64 sites so far",
        {"service": "api", "worker": "api/1", "command": "brickd coverage api", "problem": DIFFERS},
    )


def test_the_number_of_sites_of_a_disagreement_is_reported_for_both() -> None:
    service = Service(2)
    for site in range(1, 31):
        service.send(GOOD, BAD, site=site)
    service.look()
    assert service.kinds == ["diverged"] * 8 + ["diverged_more"]
    assert service.logged[8][1] == "api/0 and api/1 disagree at 30 sites so far"


def test_each_of_several_new_outliers_at_one_site_is_reported() -> None:
    service = Service(7)
    service.send(GOOD, BAD, GOOD, GOOD, GOOD, WORSE, GOOD)
    service.look()
    assert service.logged[0][1].startswith("api/1 and 1 more worker differ from the others")
    assert service.logged[1][:2] == ("diverged_more", "api/5 differs from the others: k1 layer 3")


@pytest.mark.ci
def test_a_differing_site_is_never_reported_as_compared() -> None:
    service = Service(2)
    for site in range(1, 101):
        for given_ in range(4):
            service.send(GOOD, BAD, site=site, given=given_)
    found = service.look()
    assert Counter(states(found).values()) == {SiteState.DIFFERS: 100}
    small = Service(2, bytes_max=1)
    small.send(GOOD, BAD)
    small.workers[0].receive(b"".join(CheckedRecord(GOOD, (Tensor(n),), site=2).slots() for n in range(100, 1100)))
    assert states(small.look())[HERE] is SiteState.UNJUDGED


def states(compared: Compared) -> dict[ServiceSite, SiteState]:
    return {place: state_of(compared, place, counts, {}, {}) for place, counts in compared.sites.items()}


@pytest.mark.ci
def test_every_service_has_its_share_of_the_evidence() -> None:
    service = Service()
    for name in range(6):
        service.workers = [service.worker(f"{name}-{n}", service=f"s{name}") for n in range(2)]
        for site in range(1, EVIDENCE_MAX + 2):
            service.send(GOOD, BAD, site=site)
            service.watch.look(lambda: Roll({}, {f"s{n}" for n in range(6)}, ()))
    found = service.watch.compared.findings.values()
    kept = Counter(each.place.service for each in found if each.first.whole)
    assert sum(kept.values()) == ALL_EVIDENCE_MAX
    assert max(kept.values()) - min(kept.values()) <= 1
    assert len(found) == 6 * (EVIDENCE_MAX + 1)


def test_the_outlier_of_a_hundred_is_named_at_any_position() -> None:
    for bad in (0, 99):
        service = Service(100)
        service.send(*(BAD if n == bad else GOOD for n in range(100)))
        found = service.look().findings[HERE]
        assert (found.outliers, len(found.workers)) == ({f"u{bad}": 1}, WORKERS_MAX)


@pytest.mark.parametrize(
    ("sites", "more"), [(1, "equal"), (2, "equal (and at 1 more site)"), (3, "equal (and at 2 more sites)")]
)
def test_one_sentence_covers_all_differences_of_the_same_workers(sites: int, more: str) -> None:
    service = Service(3)
    for site in range(1, 1 + sites):
        service.send(GOOD, BAD, GOOD, site=site)
    found = service.look()
    ((first, reported),) = headlines(found.findings.values(), KnownNames({"u1": "api/1"}), found.since_ns)
    assert first.place == HERE
    assert reported.startswith("api/1 differs from the others since ")
    assert reported.endswith(f"k1 layer 3, relative error 0.25; its inputs were {more}")


def test_forgotten_findings_are_gone_at_the_next_look() -> None:
    service = Service(2)
    for site in (1, 2):
        service.send(GOOD, BAD, site=site)
    service.look()
    service.watch.forget((), lambda finding: finding.place == HERE)
    assert list(service.look().findings) == [ServiceSite("api", "k2", 3)]


def test_a_named_worker_is_shown_by_its_present_name() -> None:
    service = Service(3)
    service.send(GOOD, BAD, GOOD)
    found = service.look().findings[HERE]

    def messages(**names: str) -> tuple[str, str, list[str]]:
        called = KnownNames({"u2": "api/2", **names}, {"u1"} & names.keys())
        ((_, text),) = headlines([found], called, 0)
        return text.partition(" since ")[0], command(found, called), finding(found, called)["workers"]

    another = {"v1": "api/1"}
    now = messages(u1="api/1~u1", **another)
    assert now == ("api/1~u1 (ended) differs from the others", "brickd diff api/2 'api/1~u1'", ["api/1~u1"])
    assert messages(**another) == ("api/1~u1 differs from the others", "brickd coverage api", ["api/1~u1"])
    assert messages(u1="api/2")[1] == "brickd coverage api"


def test_workers_that_once_shared_a_name_are_distinguished_in_commands() -> None:
    service = Service(2)
    service.send(GOOD, BAD)
    service.watch.look(lambda: Roll({"u0": "api/1", "u1": "api/1"}, {"api"}, {"u0", "u1"}))
    assert service.logged[0][1].startswith("api/1 and api/1 disagree")
    assert service.logged[0][2]["command"] == "brickd coverage api"


def test_a_forgotten_worker_has_no_vote() -> None:
    service = Service(3)
    service.send(GOOD, BAD, GOOD)
    service.look()
    service.send(GOOD, BAD, GOOD, given=8)  # nothing has judged this case yet when the workers are forgotten
    service.watch.forget({"u0", "u1", "u2"}, lambda _: False)
    service.workers = [service.worker(f"v{n}") for n in range(3)]
    for given_ in (7, 8):
        service.send(GOOD, GOOD, GOOD, given=given_)
    found = service.look()
    assert (found.findings, found.doubts, service.kinds) == ({}, {}, ["diverged"])
    assert set(service.numerics.producers) == {"v0", "v1", "v2"}
    service.send(GOOD, GOOD, BAD, given=9)
    assert service.look().findings[HERE].outliers == {"v2": 1}


def test_a_forgotten_worker_is_removed_from_shared_findings() -> None:
    service = Service(6)
    service.send(GOOD, BAD, GOOD, GOOD, GOOD, WORSE)
    service.look()
    service.watch.forget({"u1", "u3"}, lambda _: False)
    assert service.look().findings[HERE].outliers == {"u5": 1}
    service.watch.forget({"u5"}, lambda _: False)
    assert service.look().findings == {}


def test_a_doubt_leaves_with_the_worker_that_contradicted_itself() -> None:
    service = Service(3)
    for worker in service.workers[:2]:
        for output in (GOOD, BAD):
            worker.receive(CheckedRecord(output, (Tensor(9),)).slots())
    (doubt,) = service.look().doubts.values()
    assert doubt.contradict == {"u0", "u1"}
    service.watch.forget({"u1"}, lambda _: False)
    (doubt,) = service.look().doubts.values()
    assert doubt.contradict == {"u0"}
    service.watch.forget({"u0"}, lambda _: False)
    assert service.look().doubts == {}


# ---- over a restart


def again(compared: Compared) -> Compared:
    return Memory.of(json.loads("".join(Memory("p", compared=compared).pieces()))).compared


def test_findings_and_counts_survive_a_daemon() -> None:
    service = Service(3)
    service.send(GOOD, BAD, GOOD, backend=5)
    service.send(Tensor(4), Tensor(5), site=2)
    service.send(Tensor(5), Tensor(4), site=2)
    before = service.look()
    after = again(before)
    assert (after.findings, after.doubts, after.sites) == (before.findings, before.doubts, before.sites)
    assert (after.since_ns, after.latest, after.unlooked) == (before.since_ns, before.latest, before.unlooked)
    heir = Service(3, after)
    assert heir.watch.compared.findings == before.findings
    heir.send(GOOD, BAD, GOOD, backend=5, given=9)
    found = heir.look()
    assert found.findings[HERE].outliers == {"u1": 2}
    assert found.sites[HERE][:5] == ("other", 6, 0, 6, before.sites[HERE].unlike * 2)
    assert found.sites[HERE].judged == found.sites[HERE].unlike
    assert found.since_ns == before.since_ns < found.window_since_ns
    assert heir.logged == []


def test_findings_of_an_older_format_without_names_are_continued() -> None:
    service = Service(3)
    service.send(GOOD, BAD, GOOD)
    before = service.look()
    document = json.loads("".join(Memory("p", compared=before).pieces()))
    compared = document["compared"]
    names = compared.pop("names")
    for row in compared["findings"]:
        uuids = [names[number][0] for number in row[3]]
        row[3] = {uuid: names[number][1] for uuid, number in zip(uuids, row[3], strict=True)}
        row[4] = {uuids[number]: times for number, times in row[4]}
        row[5] = [uuids[number] for number in row[5]]
    compared["sites"] = [row[:-1] for row in compared["sites"]]
    assert Memory.of(document).compared.findings == before.findings
    assert Memory.of(document).compared.sites == before.sites


@pytest.mark.ci
def test_thousands_of_sites_need_little_memory() -> None:
    service = Service(8)
    names = {f"{n:032x}": f"api/{n}" for n in range(WORKERS_MAX)}
    service.send(GOOD, BAD, GOOD)
    (one,) = service.look().findings.values()
    one = one.bare()._replace(workers=names, outliers=dict.fromkeys(list(names)[:8], 9), contradict=frozenset())
    findings = {place: one._replace(place=place) for n in range(1024) if (place := ServiceSite("api", "k", n))}
    whole = Compared(findings=findings)
    assert again(whole).findings == findings
    assert len("".join(online_codec.encode(whole))) < 600 * len(findings)


def test_a_memory_from_before_fingerprints_can_be_loaded() -> None:
    document = json.loads("".join(Memory("p").pieces()))
    del document["compared"]
    assert Memory.of(document).compared == Compared()


def test_counts_are_separate_up_to_the_limit_of_sites() -> None:
    before = Compared(sites={ServiceSite("api", f"s{n}", 0): SiteCounts("other", 1) for n in range(SITES_MAX - 1)})
    service = Service(1, before)
    service.send(GOOD, site=1)
    service.send(GOOD, site=2)
    service.send(GOOD, site=3)
    sites = service.look().sites
    assert [sites[place].fingerprints for place in sites if place.kernel.startswith("k")] == [1]
    assert sites[ServiceSite("api", "", -1)].fingerprints == 2
    assert len(sites) == SITES_MAX + 1


def test_a_service_without_known_workers_leaves_nothing() -> None:
    service = Service(2)
    service.send(GOOD, BAD)
    service.send(GOOD, GOOD, site=2)
    first = service.look()
    assert set(first.findings) < set(first.sites)
    heir = Service(0, again(first))
    heir.workers = [heir.worker(f"b{n}", service="batch") for n in range(2)]
    heir.send(GOOD, BAD)
    found, batch = heir.look(), ServiceSite("batch", "k1", 3)
    assert ([*found.sites], [*found.findings], [*found.latest]) == ([batch], [batch], ["batch"])
    heir.workers = [heir.worker("late", service="other")]
    heir.send(GOOD)
    found = heir.look()
    assert ([*found.sites], [*found.findings], [*found.latest]) == ([ServiceSite("other", "k1", 3)], [], [])
    assert heir.numerics.fingerprints.counts() == []


# ---- which worker is right


@pytest.mark.parametrize(
    ("reported", "outliers", "comparable"),
    [
        ({0: [1], 1: [2]}, set(), True),
        ({0: [1], 1: [1], 2: [2]}, {2}, True),
        ({0: [1], 1: [1], 2: [2], 3: [2]}, set(), True),
        ({0: [1], 1: [1], 2: [2], 3: [3]}, set(), True),
        ({0: [1], 1: [1], 2: [1], 3: [2], 4: [3]}, {3, 4}, True),
        ({0: [1], 1: [1], 2: [1, 2]}, {2}, True),
        ({0: [1], 1: [2], 2: [1, 2]}, set(), True),
        ({0: [1], 1: [1, 2]}, set(), False),
        ({0: [1, 1], 1: [1, 2]}, {1}, True),
        ({0: [1, 2]}, set(), False),
        ({0: [1, 2], 1: [1, 2], 2: [1]}, set(), False),
    ],
)
def test_the_majority_is_right(reported: dict[int, Sequence[int]], outliers: set[int], comparable: bool) -> None:
    found = judge_group(group(reported))
    assert (set(found.outliers), found.against is not None) == (outliers, comparable)


def test_a_self_contradicting_workers_most_frequent_output_is_shown_with_another() -> None:
    """The two outputs that are shown are not always the first or the last ones."""
    assert judge_group([(0, 1, 1, 9), (0, 2, 3, 4), (0, 3, 2, 7)]).contradiction == (4, 7)
    assert judge_group([(1, 1, 5, 9), (1, 2, 3, 4), (0, 2, 1, 2), (0, 1, 2, 1)]).contradiction == (1, 2)


def group(reported: Mapping[int, Sequence[int]]) -> list[tuple[int, int, int, int]]:
    rows = [(worker, output) for worker, outputs in reported.items() for output in outputs]
    return [(*row, rows.count(row), number) for number, row in enumerate(dict.fromkeys(rows))]


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1))
def test_an_outlier_is_shown_against_a_repeatable_worker_with_another_output(
    reported: dict[int, list[int]],
) -> None:
    rows = group(reported)
    found = judge_group(rows)
    steady = {worker for worker, outputs in reported.items() if len(set(outputs)) == 1}
    assert found.contradict == set(reported) - steady
    if found.against is None or found.other is None:
        assert not found.outliers
        return
    worker, output, *_ = next(row for row in rows if row[3] == found.against)
    other, another, *_ = next(row for row in rows if row[3] == found.other)
    assert worker in steady
    assert output != another
    assert not found.outliers or other in found.outliers
    if found.outliers:
        majority = [each for each in steady if reported[each][0] == output]
        assert not found.outliers.intersection(majority)


# ---- any records


def test_an_error_that_no_number_holds_is_unknown() -> None:
    service = Service(2)
    service.send(Tensor(1, l2=1e-308), Tensor(2, sketch=(1e38,) * 16))
    (found,) = service.look().findings.values()
    assert finding(found, KnownNames({}))["relative_error"] is None


@given(st.binary(min_size=6 * 64, max_size=6 * 64), st.binary(min_size=4 * 64, max_size=4 * 64), st.text(max_size=8))
def test_any_outputs_of_two_workers_are_judged_stored_and_shown(one: bytes, other: bytes, name: str) -> None:
    head = CheckedRecord(GOOD, (Tensor(7),), backend=1, of=1).slots()[:64]
    service = Service()
    tables = WorkerNames([None, (name, 0)], [None, (1, -1, 0)])
    service.workers = [service.worker(uuid, tables) for uuid in ("u0", "u1")]
    shape, dtype = (
        next(row for row in records.fields_of("tensor_sums") if row[0] == name) for name in ("shape", "dtype")
    )
    for worker, reported in zip(service.workers, (one[64:], other), strict=True):
        output = bytearray(reported[64:192])
        # keep the shape and the dtype: otherwise, the records would not be comparable
        for _, at, _, code in (shape, dtype):
            output[at : at + struct.calcsize(code)] = bytes(struct.calcsize(code) - 1) + b"\1"
        worker.receive(head + reported[:64] + bytes(output) + one[-128:])
    found = service.look()
    assert len(service.logged) == len(found.findings)
    assert again(found).findings == found.findings
    for each in found.findings.values():
        json.dumps(finding(each, KnownNames({}), StepTexts()), allow_nan=False)
