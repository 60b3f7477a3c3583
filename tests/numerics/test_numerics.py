"""The daemon's loop receives the fingerprints of workers from their rings."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from checked_record import CheckedRecord, Tensor
from faults import Start

from brickd.analysis.numerics import fingerprint_export
from brickd.analysis.numerics.fingerprints import PRODUCERS_MAX, FingerprintProducer, Numerics
from brickd.analysis.numerics.online_state import ServiceSite
from brickd.base.units import SECOND
from brickd.daemon.collector import Collector
from brickd.shm import _reader
from brickd.shm.sites import SITES_MAX, Site, Sites, WorkerNames
from brickd.state.daemon_state import Memory

IN = (Tensor(7),)
WORK = """
import numpy as np
x = np.arange(12, dtype="f").reshape(3, 4)
brick.brick("gate", category="ffn")
for step in range(3):
    brick.checksum("gate", x + bad * (step == 1), input=x, layer=2, step=step)
    brick.checksum("down", x * 2, input=[x, x], step=step)
report(None)
pause()
"""


@pytest.fixture
def collecting(prefix: str) -> Iterator[tuple[Collector, Numerics]]:
    """Yield a daemon loop in this process, and the fingerprints that it has received."""
    numerics = Numerics()
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, numerics=numerics, clock=int)
    yield loop, numerics
    loop.end(SECOND)


def test_fingerprints_of_two_workers_are_received_under_their_own_names(
    worker: Start, collecting: tuple[Collector, Numerics], tmp_path: Path
) -> None:
    loop, numerics = collecting
    running = [worker(f"bad = {bad}\n" + WORK, BRICKD_KEY_FILE=f"{tmp_path}/key") for bad in (0, 1)]
    for each in running:
        each.next_report()
        each.paused()
    loop.tick(0, look=True)
    counts = {(place.kernel, place.layer): each[:4] for place, each in loop.memory.compared.sites.items()}
    assert counts == {("gate", 2): ("ffn", 6, 0, 6), ("down", -1): ("other", 6, 0, 6)}
    assert list(loop.memory.compared.findings) == [ServiceSite("python", "gate", 2)]
    assert [producer.service for producer in numerics.producers.values()] == ["python"] * 2
    for each in running:
        each.go()
        assert each.end() == 0, each.stderr


def test_fingerprints_of_a_dead_worker_are_received_to_the_end(
    worker: Start, collecting: tuple[Collector, Numerics]
) -> None:
    loop, numerics = collecting
    process = worker("bad = 0\n" + WORK)
    process.next_report()
    process.paused()
    process.kill()
    loop.tick(0, look=True)
    loop.tick(6 * SECOND)
    loop.tick(12 * SECOND)
    assert not loop.memory.known
    assert numerics.fingerprints.end == 6


# ---- producers


def producer(
    numerics: Numerics, tables: Callable[[], WorkerNames], uuid: str = "u", service: str = "api"
) -> FingerprintProducer:
    return numerics.producer(uuid, service, tables, "")


def test_a_worker_belongs_to_its_shard() -> None:
    near, far = Numerics(), Numerics()
    tables = WorkerNames([None, ("k", 0)], [None, (1, 0, 0)])
    for numerics, uuid, shard, output in ((near, "a", "tp0", 1), (far, "b", "tp1", 2), (far, "c", "tp0", 1)):
        numerics.producer(uuid, "api", lambda: tables, shard).receive(CheckedRecord(Tensor(output), IN).slots())
    fingerprint_export.add_exported(near, fingerprint_export.document(far))
    assert [near.producers[uuid].shard for uuid in "abc"] == ["tp0", "tp1", "tp0"]
    assert (near.fingerprints.unlike(), [count[4:6] for count in near.fingerprints.counts()]) == ([], [(2, 0)])


def sites_held(numerics: Numerics) -> list[Site]:
    fingerprints = numerics.fingerprints
    return [
        numerics.sites[print_[1]]
        for n in range(fingerprints.first, fingerprints.end)
        if (print_ := fingerprints.read(n))
    ]


def test_tables_are_looked_up_once_for_all_their_names() -> None:
    numerics, looks = Numerics(), []

    def tables() -> WorkerNames:
        looks.append(1)
        return WorkerNames([("other", 0), ("mlp", 2), ("FFN", 0)], [None, (1, 3, 0)])

    one = producer(numerics, tables)
    for _ in range(3):
        one.receive(CheckedRecord(Tensor(1), IN).slots() * 5)
    assert sites_held(numerics) == [Site("mlp", 3, "FFN")] * 15
    assert len(looks) == 1


def test_tables_that_workers_of_a_service_share_are_stored_once() -> None:
    numerics = Numerics()
    named = (("w", "api"), ("w", "api"), ("v", "api"), ("w", "batch"))
    tables = [WorkerNames([("other", 0), (name, 0)], [None, (1, 0, 0)]) for name, _ in named]
    producers = [
        numerics.producer(str(n), service, lambda n=n: tables[n], "")  # type: ignore[misc]
        for n, (_, service) in enumerate(named)
    ]
    for producer in producers:
        producer.learn()
    first, same, other, elsewhere = producers
    assert same.tables is first.tables
    assert same.digests is first.digests
    assert other.tables is tables[2]
    assert [each.tables.site(1).kernel for each in producers] == ["w", "w", "v", "w"]
    assert list(elsewhere.digests) == list(first.digests) != list(other.digests)


@pytest.mark.ci
def test_a_worker_with_unknown_references_is_received_and_its_tables_rarely_reread() -> None:
    numerics, looks = Numerics(), []

    def tables() -> WorkerNames:
        looks.append(1)
        return WorkerNames([None], [])

    one = producer(numerics, tables)
    for _ in range(1000):
        one.receive(CheckedRecord(Tensor(1), IN, site=40, backend=50).slots() * 2)
    assert numerics.fingerprints.end == 2000
    assert len({site.kernel for site in sites_held(numerics)}) == 1
    assert len(looks) < 12


def test_site_numbers_of_two_workers_for_one_site_are_unified() -> None:
    numerics = Numerics()
    one = producer(numerics, lambda: WorkerNames([None, ("mlp", 0)], [None, (1, -1, 0)]), "one")
    other = producer(numerics, lambda: WorkerNames([None, None, ("mlp", 0)], [None, None, (2, -1, 0)]), "other")
    one.receive(CheckedRecord(Tensor(1), IN, site=1).slots())
    other.receive(CheckedRecord(Tensor(2), IN, site=2).slots())
    assert numerics.fingerprints.unlike() == [1]


def test_weights_are_separate_from_outputs_and_looked_up_equally() -> None:
    numerics = Numerics()
    record = CheckedRecord(Tensor(1), flags=_reader.CHECKED_WEIGHT).slots()
    producer(numerics, lambda: WorkerNames([None, ("w", 0)], [None, (1, 3, 0)])).receive(record)
    assert numerics.fingerprints.end == 0
    assert list(numerics.weights.tensors("api")) == [("w", 3, -1)]
    assert numerics.weights.of("u") is not None


def test_weights_without_a_name_are_not_confused_with_others() -> None:
    numerics = Numerics()
    record = CheckedRecord(Tensor(1), flags=_reader.CHECKED_WEIGHT).slots()
    producer(numerics, lambda: WorkerNames([None], [])).receive(record)
    assert (numerics.weights.of("u"), numerics.fingerprints.end) == (None, 0)


def test_a_selection_of_workers_holds_only_theirs_and_never_changes() -> None:
    numerics = Numerics()
    for uuid in ("a", "b"):
        producer(numerics, lambda: WorkerNames([None, ("k", 0)], [None, (1, -1, 0)]), uuid).receive(
            CheckedRecord(Tensor(1), IN).slots()
        )
    about = numerics.about({"b", "c"})
    numerics.producers["b"].receive(CheckedRecord(Tensor(1), IN).slots())
    assert (list(about.producers), about.fingerprints.end, sites_held(about)) == (
        ["b"],
        1,
        [Site("k", -1, "other")],
    )


def test_a_worker_added_to_a_copy_is_a_new_one() -> None:
    numerics, tables = Numerics(), WorkerNames([None, ("k", 0)], [None, (1, -1, 0)])
    for number in range(5):
        producer(numerics, lambda: tables, str(number), f"s{number}").receive(CheckedRecord(Tensor(number), IN).slots())
    about = numerics.about({"1", "4"})
    producer(about, lambda: tables, "late", "later").receive(CheckedRecord(Tensor(9), IN).slots())
    reported = {}
    for number in range(about.fingerprints.end):
        print_ = about.fingerprints.read(number)
        assert print_ is not None
        reported[print_[0]] = print_[2]
    wanted = {uuid: CheckedRecord(Tensor(output), IN).slots() for uuid, output in (("1", 1), ("4", 4), ("late", 9))}
    assert {uuid: reported[each.number] for uuid, each in about.producers.items()} == wanted
    assert len({about.service_number(each.service) for each in about.producers.values()}) == 3
    assert {uuid: each.newest.tensors for uuid, each in about.producers.items()} == {"1": 1, "4": 2, "late": 3}
    assert about.producers["1"].tables.site(1) == Site("k", -1, "other")


def test_a_copy_is_independent_of_its_original() -> None:
    numerics = Numerics()
    one = producer(numerics, lambda: WorkerNames([None, ("k", 0)], [None, (1, -1, 0)]))
    one.receive(CheckedRecord(Tensor(1), IN).slots())
    about = numerics.about({"u"})
    shared = {name for name, value in vars(numerics).items() if vars(about)[name] is value and type(value) is not int}
    assert shared == set()
    assert about.producers["u"] is not one


def test_losses_of_a_copy_are_counted_in_the_copy() -> None:
    numerics = Numerics(1)  # the smallest window
    one, other = (
        producer(numerics, lambda: WorkerNames([None, ("k", 0)], [None, (1, 3, 0)]), uuid) for uuid in ("a", "b")
    )
    other.lose(5)
    one.receive(b"".join(CheckedRecord(Tensor(n), IN).slots() for n in range(300)))
    one.lose(2)
    about = numerics.about({"a", "b"})
    assert {uuid: about.lost(each) for uuid, each in about.producers.items()} == {"a": 2, "b": 0}
    assert (about.evicted, about.producers["b"].newest.tensors) == (numerics.evicted, 0)


def test_losses_are_counted_where_they_were_received() -> None:
    numerics = Numerics()
    one = producer(numerics, lambda: WorkerNames([None, ("k", 0)], [None, (1, -1, 0)]))
    one.receive(CheckedRecord(Tensor(1), IN).slots())
    one.lose(3)
    one.receive(CheckedRecord(Tensor(1), IN).slots())
    one.lose(3)
    assert (one.lost, one.lost_before) == (3, 1)


def test_workers_above_the_limit_replace_the_longest_silent_one() -> None:
    numerics = Numerics()
    first = producer(numerics, lambda: WorkerNames([None, ("k", 0)], [None, (1, -1, 0)]), "first")
    first.receive(CheckedRecord(Tensor(1), IN).slots())
    for number in range(PRODUCERS_MAX):
        producer(numerics, lambda: WorkerNames([], []), str(number))
    assert len(numerics.producers) <= PRODUCERS_MAX
    assert "first" in numerics.producers


@pytest.mark.ci
def test_the_memory_for_past_services_is_bounded() -> None:
    numerics, tables = Numerics(), WorkerNames([None, ("k", 0)], [None, (1, -1, 0)])
    records = CheckedRecord(Tensor(1), IN).slots()

    def come(services: int) -> int:
        """Add services, each of which sends something and is then forgotten; return the bytes that are in use."""
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(services):
            uuid = uuid4().hex
            producer(numerics, lambda: tables, uuid, uuid).receive(records)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        first = come(PRODUCERS_MAX)
        assert come(PRODUCERS_MAX) < first / 20 > come(PRODUCERS_MAX)
    finally:
        tracemalloc.stop()


@pytest.mark.ci
def test_a_service_that_returns_is_not_compared_with_its_earlier_workers() -> None:
    numerics, tables = Numerics(), WorkerNames([None, ("k", 0)], [None, (1, -1, 0)])
    records, numbers = CheckedRecord(Tensor(1), IN).slots(), []
    for _ in range(2):
        producer(numerics, lambda: tables, uuid4().hex, "back").receive(records)
        numbers.append(numerics.service_number("back"))
        assert numerics.service(numbers[-1]) == "back"
        for number in range(PRODUCERS_MAX):
            producer(numerics, lambda: tables, str(number), "other").receive(records)
    assert numbers[0] != numbers[1]
    assert numerics.service(numbers[0]) == ""


@pytest.mark.ci
def test_sites_beyond_the_limit_have_numbers_as_names() -> None:
    sites = Sites()
    numbers = [sites.number(Site(f"k{n}", 0, "other")) for n in range(SITES_MAX + 1)]
    assert sites[numbers[0]].kernel == "k0"
    assert sites[numbers[-1]].kernel == f"site#{numbers[-1]:x}"
    assert len(set(numbers)) == len(numbers)


# ---- exported and imported


def test_an_exported_selection_is_imported_with_its_losses() -> None:
    numerics = Numerics(1)  # the smallest window
    tables = WorkerNames([None, ("k", 0)], [None, (1, 3, 0)])
    one, other = (producer(numerics, lambda: tables, uuid) for uuid in ("one", "other"))
    other.lose(5)
    other.receive(CheckedRecord(Tensor(1), IN).slots())
    one.receive(b"".join(CheckedRecord(Tensor(n), IN).slots() for n in range(300)))
    one.lose(2)
    there = Numerics()
    fingerprint_export.add_exported(there, json.loads(json.dumps(fingerprint_export.document(numerics))), "00")
    assert {name: there.lost(each) for name, each in there.producers.items()} == {"00one": 2, "00other": 0}
    assert there.evicted == numerics.evicted > 0
    assert there.fingerprints.end == numerics.fingerprints.end - numerics.fingerprints.first
    assert set(sites_held(there)) == {Site("k", 3, "other")}
