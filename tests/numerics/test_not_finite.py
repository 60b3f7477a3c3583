"""Places where NaN and infinities begin are found immediately, without another worker, unless they are by design."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor
from conftest import ROOT
from faults import Start
from running import running
from test_watch import TABLES, Service
from verbs import brickd, document, started

from brickd.analysis.numerics import not_finite, online_codec
from brickd.analysis.numerics.birth_alarms import EVENTS_MAX, alarms, log_births, problems
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.not_finite import (
    BIRTHS_MAX,
    BY_DESIGN_MAX,
    FIRST,
    KINDS,
    Birth,
    BirthsWatch,
    BornAt,
    CountedBirths,
    Known,
    found,
)
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.problem import problem_id
from brickd.analysis.problem_book import Book
from brickd.shm import _reader

MORE, UNREAD = 4, 0
FINE, INPUT = Tensor(1), Tensor(7)
NAN, INF, NEG = Tensor(2, nan=1), Tensor(2, pos_inf=3), Tensor(2, neg_inf=2)
ACTIVE_NS = Book().active_ns
KNOWN = {f"u{n}": f"api/{n}" for n in range(9)}


def rows(*workers: Sequence[tuple[int, int]], counts: Sequence[int]) -> list[CountedBirths]:
    """Return the counts of workers at one site.

    Each worker is given as a pair for each kind: the first fingerprint of this kind, and how many there are. `counts`
    has the number of all fingerprints of each worker.
    """
    return [CountedBirths(0, 5, n, counts[n], tuple(kinds)) for n, kinds in enumerate(workers)]


def of_nan(*workers: tuple[int, int], counts: Sequence[int]) -> list[int]:
    """Return the workers with a finding of NaN."""
    none = (0, 0)
    return [row.worker for row, _, _ in found(rows(*[(each, none, none) for each in workers], counts=counts))]


# ---- conditions of a finding


def test_a_birth_after_the_first_fingerprints_is_a_finding_without_a_peer() -> None:
    assert of_nan((FIRST["NaN"], 1), counts=[100]) == []
    assert of_nan((FIRST["NaN"] + 1, 1), counts=[100]) == [0]
    assert of_nan((0, 0), counts=[100]) == []


def test_births_in_all_workers_from_the_beginning_are_by_design() -> None:
    assert of_nan((1, 100), (3, 90), (16, 5), counts=[100, 100, 100]) == []


def test_a_birth_that_another_worker_never_has_is_a_finding_from_the_beginning() -> None:
    assert of_nan((1, 100), (0, 0), counts=[100, FIRST["NaN"]]) == [0]
    assert of_nan((1, 100), (0, 0), counts=[100, FIRST["NaN"] - 1]) == [], "there are too few fingerprints to decide"


def test_each_kind_is_judged_separately_and_minus_infinity_takes_longer() -> None:
    late = FIRST["NaN"] + 1
    counted = rows(((0, 0), (late, 2), (late, 4)), counts=[2_000])
    assert [(kind, times) for _, kind, times in found(counted)] == [("Inf", 2)]
    counted = rows(((0, 0), (0, 0), (FIRST["-Inf"] + 1, 4)), counts=[2_000])
    assert [(kind, times) for _, kind, times in found(counted)] == [("-Inf", 4)]


def test_the_limits_match_the_documentation() -> None:
    page = (ROOT / "docs" / "explanation" / "evidence.md").read_text()
    assert "worker's first 16 fingerprints at the site held none (for -Inf: the first 1,024)" in " ".join(page.split())
    assert FIRST == {"NaN": 16, "Inf": 16, "-Inf": 1_024}
    assert BIRTHS_MAX == 1_024


def test_sites_and_services_are_judged_separately() -> None:
    (sick,), (well,) = (rows(((1, 1), (0, 0), (0, 0)), counts=[9]), rows(((0, 0),) * 3, counts=[100]))
    assert len(list(found([sick, well]))) == 1
    assert not list(found([sick, well._replace(site=6)]))
    assert not list(found([sick, well._replace(service=1)]))


# ---- counts


def counts(window: _reader.Fingerprints) -> dict[int, tuple[int, ...]]:
    """Return, for each worker, the count of all fingerprints; then for NaN, Inf and -Inf, the first fingerprint and the
    count.
    """
    return {row[2]: (row[3], *row[4], *row[5], *row[6]) for row in window.births()}


def window(*records: CheckedRecord, numerics: Numerics | None = None) -> _reader.Fingerprints:
    numerics = numerics or Numerics(1 << 20)
    producer = numerics.producer("u0", "api", lambda: TABLES, "")
    for each in records:
        producer.receive(each.slots())
    return numerics.fingerprints


def test_a_birth_is_in_an_output_whose_inputs_are_finite() -> None:
    assert counts(
        window(
            CheckedRecord(FINE, (INPUT,)),
            CheckedRecord(NAN, (INPUT,)),
            CheckedRecord(replace(NAN, pos_inf=1), (INPUT,)),
        )
    ) == {1: (3, 2, 2, 3, 1, 0, 0)}
    both = window(CheckedRecord(INF, (INPUT,)), CheckedRecord(NEG, (INPUT, INPUT)))
    assert counts(both) == {1: (2, 0, 0, 1, 1, 2, 1)}


@pytest.mark.parametrize(
    "records",
    [
        CheckedRecord(NAN),  # a record whose inputs are unknown
        *(CheckedRecord(NAN, (INPUT, bad)) for bad in (Tensor(7, nan=1), Tensor(7, pos_inf=1), Tensor(7, neg_inf=1))),
        CheckedRecord(NAN, (INPUT, replace(INPUT, dtype=UNREAD))),
        CheckedRecord(NAN, (INPUT,) * 8, flags=MORE),
        CheckedRecord(FINE, (INPUT,)),
    ],
)
def test_a_value_that_an_input_has_or_may_have_is_not_born(records: CheckedRecord) -> None:
    assert counts(window(records)) == {}


def test_a_stateful_site_is_counted_under_the_same_name() -> None:
    both = window(CheckedRecord(NAN, (INPUT,), flags=32), CheckedRecord(FINE, (INPUT,)))
    assert counts(both) == {1: (2, 1, 1, 0, 0, 0, 0)}


def test_workers_without_births_are_counted_only_where_another_has_some() -> None:
    service = Service(2)
    service.send(FINE, NAN)
    service.send(FINE, FINE, site=2)
    assert [(row[2], row[3], row[4]) for row in service.numerics.fingerprints.births()] == [
        (2, 1, (1, 1)),
        (1, 1, (0, 0)),
    ]
    service.numerics.forget(["u1"])
    assert service.numerics.fingerprints.births() == []


@pytest.mark.ci
def test_counts_of_births_are_bounded_and_overflow_is_counted() -> None:
    numerics = Numerics(1 << 12)  # a small window of fingerprints
    fingerprints = numerics.fingerprints
    most, sites = 65_536, 512
    names = _reader_numbers(sites)
    records = b"".join(CheckedRecord(NAN, (INPUT,), site=n).slots() for n in range(sites))
    for worker in range(1, most // sites + 1):
        fingerprints.add(worker, 0, 0, names, names, records, True)
    assert fingerprints.untracked == 0
    assert len(fingerprints.births()) == 8_192
    fingerprints.add(500, 0, 0, names, names, CheckedRecord(NAN, (INPUT,)).slots(), True)
    assert fingerprints.untracked == 0, "fingerprints that left the window make room"
    assert 0 < len(fingerprints.births()) < sites


@pytest.mark.ci
def test_a_full_table_is_compacted_once_per_4096_fingerprints() -> None:
    most, every, sites = 65_536, 4_096, 512
    fingerprints, names = Numerics(1 << 26).fingerprints, _reader_numbers(sites)
    records = b"".join(CheckedRecord(NAN, (INPUT, INPUT), site=n).slots() for n in range(sites))

    def come(first: int, count: int) -> int:
        before = fingerprints.untracked
        for worker in range(first, first + count // sites):
            fingerprints.add(worker, 0, 0, names, names, records, True)
        return fingerprints.untracked - before

    assert come(1, most) == 0
    assert come(200, every) == every - 1, (
        "the window holds as many fingerprints as the table has rows, so one row is free"
    )
    assert (fingerprints.end - fingerprints.first, come(300, sites)) == (most, 0), "the table is cleaned up again"


def _reader_numbers(count: int) -> Any:
    from array import array

    return array("Q", range(1, count + 1))


# ---- findings


def born(kind: str = "NaN", worker: str = "u0", layer: int = 3, kernel: str = "k1") -> BornAt:
    return BornAt("api", kernel, layer, worker, kind)


def test_a_birth_is_found_at_the_next_look_and_reported_once() -> None:
    service = Service(1)
    for number in range(FIRST["NaN"]):
        service.send(FINE, given=number)
    assert service.look().births == {}
    service.send(NAN, given=99)
    (birth,) = service.look().births.items()
    assert (birth[0], birth[1].times) == (born(), 1)
    assert service.logged == [
        (
            "nan",
            "api/0 computes NaN at k1 layer 3; the inputs contain none",
            {"service": "api", "worker": "api/0", "command": "brickd diff api", "problem": problem_id("nan", "api")},
        )
    ]
    service.send(NAN, given=100, times=2)
    again = service.look().births[born()]
    assert (again.times, again.since_ns) == (3, birth[1].since_ns)
    assert again.latest_ns > birth[1].latest_ns
    service.send(FINE, given=101)
    assert service.look().births[born()] == again
    assert service.kinds == ["nan"]


def test_a_mask_that_every_worker_produces_is_never_an_alarm() -> None:
    service = Service(3)
    for number in range(40):
        service.send(*[replace(NEG, nan=1)] * 3, given=number)
        assert service.look().births == {}
    assert service.logged == []


def test_a_finding_continues_in_the_next_daemon() -> None:
    service = Service(1)
    for number in range(20):
        service.send(FINE if number < 17 else NAN, given=number)
    before = service.look()
    read = online_codec.decode(json.loads("".join(online_codec.encode(before))))
    assert read.births == before.births
    assert before.births[born()].times == 3
    heir = Service(2, read)
    for number in range(30):
        heir.send(NAN, FINE, given=number)
    assert heir.look().births[born()].times == 33
    assert "nan" not in heir.kinds


def test_births_by_design_before_a_restart_are_not_reported_after_it() -> None:
    service = Service(1)
    for number in range(40):
        service.send(NAN if number % 10 == 5 else FINE, given=number)
    before = service.look()
    assert (before.births, before.by_design) == ({}, {born()})
    heir = Service(1, online_codec.decode(json.loads("".join(online_codec.encode(before)))))
    for number in range(40):
        heir.send(NAN if number == 20 else FINE, given=number)
    assert (heir.look().births, heir.kinds) == ({}, [])
    forgetful = Service(1)
    for number in range(40):
        forgetful.send(NAN if number == 20 else FINE, given=number)
    forgetful.look()
    assert forgetful.kinds == ["nan"], "the counts alone would show that NaN began elsewhere"
    heir.workers.append(heir.worker("u1"))
    for number in range(FIRST["NaN"]):
        heir.send(FINE, FINE, given=100 + number)
    assert [*heir.look().births] == [born()], "another worker never gives NaN at this site"


def test_an_old_birth_that_becomes_a_finding_again_has_its_old_time() -> None:
    service = Service(2)
    for number in range(20):
        service.send(NAN, FINE, given=number)
    watch = BirthsWatch(service.numerics)
    first = watch.look({}, (), KNOWN, 10)
    assert first.births == {born(): Birth(20, 10, 10)}
    service.numerics.forget(["u1"])  # without the forgotten fingerprints, nothing shows what other workers compute
    alone = watch.look(first.births, first.by_design, KNOWN, 20)
    service.workers[1] = service.worker("u2")
    for number in range(20):
        service.send(FINE, FINE, given=100 + number)
    again = watch.look(alone.births, alone.by_design, KNOWN, 30)
    assert (again.births, again.new) == (first.births, [])


@pytest.mark.ci
def test_counts_restarted_by_compaction_continue_the_finding() -> None:
    service, sites = Service(2, bytes_max=1 << 12), 512
    for number in range(20):
        service.send(NAN, FINE, given=number)
    watch, fingerprints, names = BirthsWatch(service.numerics), service.numerics.fingerprints, _reader_numbers(sites)
    births = watch.look({}, (), KNOWN, 10).births
    assert births == {born(): Birth(20, 10, 10)}
    records = b"".join(CheckedRecord(FINE, (INPUT,), site=n).slots() for n in range(sites))
    service_number = fingerprints.births()[0][0]
    for worker in range(100, 229):
        fingerprints.add(worker, service_number, 0, names, names, records, True)
    assert fingerprints.births() == [], "both fingerprints have left the window"
    for number in range(17):
        service.send(*[NAN, FINE] if number < 3 else [FINE, FINE], given=100 + number)
    assert watch.look(births, (), KNOWN, 20).births == {born(): Birth(23, 10, 20)}


def test_ended_workers_leave_no_births() -> None:
    compared = Compared(births={born(): Birth(1, 2, 3), born(worker="u1"): Birth(4, 5, 6)})
    assert list(compared.without({"u0"}).births) == [born(worker="u1")]
    assert compared.of_services({"other"}).births == {}
    by_design = {born("Inf"), born("Inf", worker="u1")}
    look = BirthsWatch(Numerics(1)).look(compared.births, by_design, {"u0"}, 9)
    assert (list(look.births), set(look.by_design), look.new, look.unkept) == ([born()], {born("Inf")}, [], 0)
    compared = Compared(by_design=frozenset(by_design))
    assert compared.without({"u0"}).by_design == {born("Inf", worker="u1")}
    assert (compared.of_services({"api"}).by_design, compared.of_services({"other"}).by_design) == (by_design, set())


def test_findings_are_bounded_and_overflow_is_counted() -> None:
    service = Service(2)
    for number in range(20):
        service.send(FINE, NAN, given=number)
    full = {born(layer=n): Birth(1, 1, 1) for n in range(10, 10 + BIRTHS_MAX)}
    watch = BirthsWatch(service.numerics)
    nothing = frozenset[BornAt]()
    assert watch.look(full, (), KNOWN, 9) == Known(full, nothing, [], 1)
    assert BirthsWatch(service.numerics).look({}, (), {"u0"}, 9) == Known({}, nothing, [], 0), "u1 is unknown"
    assert watch.look({}, (), KNOWN, 10) == Known({}, nothing, [], 1), "without room, no new case was found"
    service.send(FINE, NAN, given=20)
    now = {born(worker="u1"): Birth(21, 9, 11)}
    assert watch.look({}, (), KNOWN, 11) == Known(now, nothing, [born(worker="u1")], 0)


def test_births_by_design_are_bounded() -> None:
    service = Service(1)
    service.send(NAN)
    full = {born(layer=n) for n in range(10, 10 + BY_DESIGN_MAX)}
    assert BirthsWatch(service.numerics).look({}, full, KNOWN, 9).by_design == full
    full.pop()
    assert BirthsWatch(service.numerics).look({}, full, KNOWN, 9).by_design == full | {born()}


def test_an_older_state_has_no_births_and_an_invalid_one_is_refused() -> None:
    assert not_finite.of_document(not_finite.plain({born(): Birth(1, 2, 3)})) == {born(): Birth(1, 2, 3)}
    for row in (
        ["api", "k", 0, "u0", "huge", 1, 2, 3],
        ["api", "k", 0, "u0", "NaN", 1, 2],
        ["api", "k", -2, "u0", "NaN", 1, 2, 3],
    ):
        with pytest.raises((ValueError, TypeError)):
            not_finite.of_document([row])


# ---- reports


def test_a_worker_has_one_alarm_that_names_its_first_site() -> None:
    births = {born("-Inf", layer=-1): Birth(2, 90, 100), born(): Birth(5, 10, 95), born(layer=4): Birth(1, 20, 20)}
    (alarm,) = alarms(births, KNOWN, 101, ACTIVE_NS)
    assert (alarm.kind, alarm.service, alarm.workers, alarm.subject) == ("nan", "api", ("api/0",), "u0")
    assert alarm.text.startswith("api/0 computes NaN and -Inf at k1 layer 3 (and at 2 more sites) since ")
    assert alarm.text.endswith(", 8 times; the inputs contain none")
    (one,) = alarms({born(layer=0): Birth(1, 1, 1), born(layer=1): Birth(1, 2, 2)}, {}, 9, ACTIVE_NS)
    assert (one.workers, one.text.split(" since ")[0]) == (
        ("u0",),
        "u0 computes NaN at k1 layer 0 (and at 1 more site)",
    )
    assert len(alarms(births, KNOWN, 99 + ACTIVE_NS, ACTIVE_NS)) == 1
    assert alarms(births, KNOWN, 100 + ACTIVE_NS, ACTIVE_NS) == []
    two = alarms(births | {born(worker="u1", layer=-1): Birth(1, 99, 99)}, {}, 101, ACTIVE_NS)
    assert [(each.workers, " at k1 since " in each.text) for each in two] == [(("u0",), False), (("u1",), True)]


def test_each_birth_renews_its_problem_and_the_end_is_an_event() -> None:
    births = {born(): Birth(5, 10, 95), born("Inf"): Birth(2, 20, 100)}
    (problem,) = problems(births, KNOWN, 101)
    (alarm,) = alarms(births, KNOWN, 101, ACTIVE_NS)
    assert (problem.kind, problem.workers, problem.text) == ("nan", ("api/0",), alarm.text)
    assert (problem.mark, problem.first_ns, problem.last_ns) == (7, 10, 100)
    assert len(problems(births, KNOWN, 9 * ACTIVE_NS)) == 1, "the problem stays after its alarm has ended"
    book, began = Book().updated([problem], {"api/0"}, 200)
    (entry,) = book.entries.values()
    assert ([each.state for each in began], entry.since_ns, entry.seen_ns) == (["began"], 10, 100)
    book, _ = book.updated([problem], {"api/0"}, 100 + ACTIVE_NS)
    (again,) = problems(births | {born(): Birth(6, 10, 300)}, KNOWN, 301)
    assert [each.seen_ns for each in book.updated([again], {"api/0"}, 301)[0].entries.values()] == [301]
    (over,) = book.updated([problem], {"api/0"}, 101 + ACTIVE_NS)[1]
    assert (over.state, over.why) == ("recovered", "its cause was not seen again for 10.0 min")
    (left,) = book.updated([], (), 400)[1]
    assert (left.state, left.why) == ("ended", "its workers ended")


def test_only_the_first_sites_of_a_worker_are_logged() -> None:
    logged: list[str] = []

    def log(kind: str, text: str, **_: str | None) -> None:
        logged.append(text)

    births = {born(layer=n): Birth(1, 1, 1) for n in range(20)}
    log_births(log, births, list(births)[:5], KNOWN)
    assert len(logged) == 0, "15 other fingerprints were known before"
    few = dict(list(births.items())[:12])
    log_births(log, few, list(few), KNOWN)
    assert len(logged) == EVENTS_MAX == 8
    assert KINDS == ("NaN", "Inf", "-Inf")


# The output is finite in the first steps, from which brickd learns the design. Later, the output is sometimes NaN. A
# mask has -Inf in every step.
PROGRAM = """
import numpy as np
brick.init()
x = np.arange(4, dtype="f")
with np.errstate(all="ignore"):
    for step in range(40):
        given = x + 100 * step
        mask = np.where(x > 2, -np.inf, 0).astype("f")
        brick.checksum("mask", mask, input=given, layer=0)
        brick.checksum("norm", given / (0 if step > 20 and step % 2 else 1) * 0, input=given, layer=5)
pause()
"""


@pytest.mark.ci
def test_a_single_worker_that_computes_nan_is_named_on_every_screen(worker: Start, prefix: str) -> None:
    with running() as daemon:
        started(worker, PROGRAM, BRICKD_SERVICE="api")
        event = daemon.until("nan")
        assert (event["service"], event["worker"]) == ("api", "api/0")
        assert event["text"] == "api/0 computes NaN at norm layer 5; the inputs contain none"
        records = daemon.once("/status", lambda records: records["alarms"])
        (alarm,) = records["alarms"]
        assert (alarm["kind"], alarm["workers"]) == ("nan", ["api/0"])
        assert [each["text"] for each in records["problems"]] == [alarm["text"]]
        assert alarm["text"].startswith("api/0 computes NaN at norm layer 5 since ")
        ended = brickd("status", "--check")
        assert (ended.returncode, "api/0 computes NaN or Inf" in ended.stdout) == (1, True)
        assert brickd("status", "--check", "--ignore", "nan").returncode == 0
        assert document("status", "api/0")["alarms"] == records["alarms"]
        brickd("set", "--threshold", "nan_for=1s")
        after = daemon.once("/status", lambda records: not records["alarms"])
        assert [each["kind"] for each in after["problems"]] == ["nan"], "the alarm has ended, but the problem has not"
