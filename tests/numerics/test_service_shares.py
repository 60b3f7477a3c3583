"""Each service has its share of the memory for fingerprints; fingerprints that fit into it are never evicted for
another service.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from checked_record import NUMBERS, CheckedRecord, Tensor, add
from faults import Start
from hypothesis import given, settings
from hypothesis import strategies as st
from running import UP, running
from verbs import document, started

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.base.paths import runtime
from brickd.shm import _reader
from brickd.shm.sites import Tier, WorkerNames

IN = Tensor(7)
# A fingerprint with one input has six slots. A slot takes about 118 bytes, including its part of the index.
SLOTS, SLOT_BYTES = 6, 118
ROOM_MIN = 1024  # the smallest window, in slots


RECORD_BYTES = 64 * SLOTS


@functools.cache
def records(count: int = 3_000) -> bytes:
    """Return records of fingerprints with different inputs."""
    return b"".join(CheckedRecord(Tensor(n), (Tensor(n),), ticks=n).slots() for n in range(count))


def send(window: _reader.Fingerprints, worker: int, count: int, service: int) -> None:
    window.add(worker, service, 0, NUMBERS, NUMBERS, records()[: count * RECORD_BYTES], True)


def room(bytes_max: int) -> int:
    """Return the number of slots of a window of this size, which is a power of two."""
    slots = ROOM_MIN
    while 2 * slots <= bytes_max // SLOT_BYTES:
        slots *= 2
    return slots


BYTES = 8 * 1024 * SLOT_BYTES
SENT = st.tuples(st.integers(0, 4), st.integers(1, 1_500))


@pytest.mark.ci
@settings(max_examples=30)
@given(st.lists(SENT, max_size=30))
def test_a_service_below_its_share_loses_no_fingerprint_and_sums_are_exact(
    sent: list[tuple[int, int]],
) -> None:
    window = _reader.Fingerprints(BYTES, True)
    had: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    for service, count in sent:
        before = dict(lost)
        send(window, service, count, service)
        had[service] += count
        share = room(BYTES // len(had)) // SLOTS
        for each in had:
            _, first, end = window.extent(each, Tier.TENSORS)
            assert (end, first >= lost[each]) == (had[each], True)
            assert end - first <= share
            lost[each] = first
            if first > before.get(each, 0):
                assert end - first == share, "the service has its full share"
    assert (window.first, window.end) == (sum(lost.values()), sum(had.values()))
    extents = [window.extent(each, Tier.TENSORS) for each in had]
    numbers = [number << 40 | n for number, first, end in extents for n in range(first, end)]
    assert all(window.read(number) is not None for number in numbers)
    assert len(set(numbers)) == window.end - window.first


@pytest.mark.ci
def test_a_single_service_uses_everything_and_the_next_gets_half() -> None:
    window = _reader.Fingerprints(BYTES, True)
    send(window, 0, 2_000, 0)
    assert window.extent(0, Tier.TENSORS)[1:] == (2_000 - room(BYTES) // SLOTS, 2_000)
    send(window, 1, 1, 1)
    assert window.extent(0, Tier.TENSORS)[1:] == (2_000 - room(BYTES // 2) // SLOTS, 2_000)
    assert window.extent(1, Tier.TENSORS)[1:] == (0, 1)
    send(window, 0, 2_000, 0)
    assert window.extent(1, Tier.TENSORS)[1:] == (0, 1)
    window.drop(1)
    send(window, 0, 2_000, 0)
    assert window.end - window.first == room(BYTES) // SLOTS, "the service has the whole window again"
    assert (window.end, window.extent(1, Tier.TENSORS)[1:]) == (6_001, (0, 0))


def test_refused_fingerprints_of_a_dropped_service_stay_counted() -> None:
    window = _reader.Fingerprints(BYTES, True)
    for service in range(2):
        add(window, service, [CheckedRecord(Tensor(0, dtype=0), (IN,))], service)
    window.drop(1)
    assert (window.end, window.refused) == (0, 2)


def test_fingerprints_left_in_a_smaller_window_are_compared_as_before() -> None:
    window = _reader.Fingerprints(BYTES, True)
    for worker in range(2):
        send(window, worker, 600, 0)
    send(window, 9, 1, 1)
    _, first, end = window.extent(0, Tier.TENSORS)
    assert 0 < first < 600
    # One worker has lost its first fingerprints, and the other worker has lost none.
    assert [number for number in range(600, 600 + first) if len(window.group(number)) != 1] == []
    assert [number for number in range(600 + first, end) if len(window.group(number)) != 2] == []
    # Each fingerprint that is left can be found by its inputs and its output.
    other = CheckedRecord(Tensor(77_777, sketch=(0.5, *(0.0,) * 15)), (Tensor(599),))
    assert add(window, 2, [other], 0)[1] == [end]
    assert sorted(worker for worker, *_ in window.group(end)) == [0, 1, 2]


def test_fingerprint_numbers_belong_to_one_service() -> None:
    window = _reader.Fingerprints(BYTES, True)
    for service in range(2):
        for worker, output in ((0, Tensor(1)), (1, Tensor(2, sketch=(0.5, *(0.0,) * 15)))):
            window.add(10 * service + worker, service, 0, NUMBERS, NUMBERS, CheckedRecord(output, (IN,)).slots(), True)
    unlike = window.unlike()
    assert len(unlike) == 2
    for service, number in enumerate(unlike):
        group = window.group(number)
        assert sorted(worker for worker, *_ in group) == [10 * service, 10 * service + 1]
        assert {window.read(each[3])[0] for each in group} == {10 * service, 10 * service + 1}  # type: ignore[index]
    one, other = unlike
    assert window.rounded(one, other) == _reader.ROUNDED_NOT
    assert sorted(row[0] for row in window.counts()) == [0, 1]
    with pytest.raises(ValueError, match="separate windows"):
        window.match([0, 1], [0, 0], True)
    copy, ends = window.select([1, 10], [1, 2], [0, 1])
    assert (copy.first, copy.end, ends) == (0, 2, [1, 2])
    assert copy.match([1, 2], [0, 0], True)["fingerprints"] == 2


def test_services_beyond_the_limit_share_one_window() -> None:
    window = _reader.Fingerprints(BYTES, True)
    for service in range(300):
        send(window, service, 1, service)
    assert len({window.extent(service, Tier.TENSORS)[0] for service in range(300)}) == 257
    assert window.end - window.first == 300


# ---- rows

ROWS = _reader.CHECKED_ROWS | _reader.CHECKED_STATELESS


def send_rows(window: _reader.Fingerprints, worker: int, count: int, service: int, flags: int = ROWS) -> None:
    rows = b"".join(CheckedRecord(Tensor(n), (Tensor(n),), position=1, flags=flags).slots() for n in range(count))
    window.add(worker, service, 0, NUMBERS, NUMBERS, rows, True)


@pytest.mark.ci
def test_many_rows_evict_only_rows() -> None:
    window = _reader.Fingerprints(BYTES, True)
    whole = room(BYTES // 2) // SLOTS
    send(window, 0, whole, 0)
    send_rows(window, 0, 5_000, 0)
    assert window.extent(0, Tier.TENSORS)[1:] == (0, whole)
    assert window.extent(0, Tier.ROWS)[1:] == (5_000 - whole, 5_000)
    send(window, 0, 3_000, 0)
    assert window.extent(0, Tier.ROWS)[1:] == (5_000 - whole, 5_000), "nor do whole tensors evict rows"


def test_the_first_row_takes_half_of_a_services_memory_and_a_dropped_service_gives_both_back() -> None:
    window = _reader.Fingerprints(BYTES, True)
    send(window, 0, 2_000, 0)
    send_rows(window, 0, 1, 0)
    assert window.extent(0, Tier.TENSORS)[1:] == (2_000 - room(BYTES // 2) // SLOTS, 2_000)
    send(window, 0, 1, 1)
    window.drop(0)
    assert window.extent(0, Tier.TENSORS)[1:] == window.extent(0, Tier.ROWS)[1:] == (0, 0)
    send(window, 0, 2_000, 1)
    assert window.extent(1, Tier.TENSORS)[1:] == (2_001 - room(BYTES) // SLOTS, 2_001)


def test_rows_of_services_beyond_the_limit_share_one_window() -> None:
    window = _reader.Fingerprints(BYTES, True)
    for service in range(200):
        send(window, service, 1, service)
        send_rows(window, service, 1, service)
    assert len({window.extent(service, tier)[0] for service in range(200) for tier in (Tier.TENSORS, Tier.ROWS)}) == 258
    assert window.extent(199, Tier.TENSORS)[1:] == window.extent(198, Tier.ROWS)[1:] == (0, 72)
    assert len(window.unlike()) == 0


def test_a_copy_has_whole_tensors_and_rows_of_a_worker() -> None:
    numerics = Numerics(BYTES, shares=True)
    producer = numerics.producer("a", "api", lambda: WorkerNames([None, ("k", 0)], [None, (1, 3, 0)]), "")
    producer.receive(CheckedRecord(Tensor(1), (IN,), position=1, flags=ROWS).slots())
    assert (producer.newest, numerics.holds(producer)) == ((0, 1, 0), True)
    copy = numerics.about({"a"})
    assert (copy.producers["a"].newest, copy.holds(copy.producers["a"])) == ((1, 1, 1), True)
    producer.receive(CheckedRecord(Tensor(1), (IN,)).slots())
    assert producer.newest == (1, 1, 0)
    assert numerics.about({"a"}).fingerprints.end == 2


def test_a_worker_has_fingerprints_until_its_newest_ones_of_both_kinds_are_evicted() -> None:
    numerics = Numerics(BYTES, shares=True)
    tables = WorkerNames([None, ("k", 0)], [None, (1, 3, 0)])
    one, other = (numerics.producer(uuid, "api", lambda: tables, "") for uuid in "ab")
    row = CheckedRecord(Tensor(1), (IN,), position=1, flags=ROWS).slots()
    one.receive(CheckedRecord(Tensor(1), (IN,)).slots())
    other.receive(CheckedRecord(Tensor(1), (IN,)).slots())
    one.receive(row)
    assert one.newest == (1, 1, 0), "the whole tensor of the other worker does not count"
    whole = room(BYTES // 2) // SLOTS
    other.receive(records()[: whole * RECORD_BYTES])
    assert numerics.extent("api").first > 1
    assert numerics.holds(one)
    other.receive(row * whole)
    assert (numerics.extent("api", Tier.ROWS).first, numerics.holds(one), numerics.holds(other)) == (1, False, True)
    assert numerics.about({"a"}).evicted == numerics.evicted == numerics.extent("api").first + 1


def test_a_forgotten_service_loses_the_counts_of_its_rows() -> None:
    window = _reader.Fingerprints(BYTES, True)
    for _ in range(2):
        send(window, 0, 2, 0)
        send_rows(window, 0, 3, 0)
        send_rows(window, 0, 4, 0, _reader.CHECKED_HISTORY)
        assert sorted(row[2] for row in window.counts()) == [2, 3, 4], "fingerprints since the counts began"
        window.forget(0)
    send(window, 0, 2, 0)
    send_rows(window, 0, 3, 0)
    send_rows(window, 0, 4, 0, _reader.CHECKED_HISTORY)
    window.forget(0)
    assert window.counts() == []
    window.drop(0)
    assert [window.extent(0, tier)[1:] for tier in Tier] == [(0, 0)] * 3


# ---- reports about workers


def test_evictions_are_counted_for_their_own_service() -> None:
    numerics = Numerics(BYTES, shares=True)
    tables = WorkerNames([None, ("k", 0)], [None, (1, 3, 0)])
    loud, quiet = (numerics.producer(name, name, lambda: tables, "") for name in ("loud", "quiet"))
    quiet.receive(CheckedRecord(Tensor(1), (IN,)).slots())
    quiet.lose(2)
    for _ in range(2):
        loud.receive(records())
    loud.lose(3)
    assert numerics.evicted > 0
    assert [numerics.about({name}).evicted for name in ("loud", "quiet")] == [numerics.evicted, 0]
    assert numerics.about({"loud", "quiet"}).evicted == numerics.evicted
    assert [numerics.worn(each) for each in (loud, quiet)] == [True, False]
    assert [numerics.lost(each) for each in (loud, quiet)] == [3, 2]
    numerics.forget(["quiet"])
    _, first, end = numerics.extent("loud")
    assert numerics.fingerprints.end - numerics.fingerprints.first == end - first, "no other service is left"


CHECKS = """
import numpy as np
x = np.arange(12, dtype="f")
for number in range({checks}):
    brick.checksum("mlp", x + number, input=x * number)
pause()
"""


@pytest.mark.ci
def test_a_busy_service_evicts_only_its_own_fingerprints_and_reports_it(worker: Start, prefix: str) -> None:
    for service, checks in (("quiet", 5), ("loud", 120)):
        for number in range(2):
            key = str(runtime().directory / "key")
            environment = {"BRICKD_SERVICE": service, "BRICKD_WORKER": str(number), "BRICKD_KEY_FILE": key}
            started(worker, CHECKS.format(checks=checks), **environment)
    with running(command=(*UP, "--numerics-bytes", "1")) as daemon:
        daemon.once(
            "/coverage",
            lambda coverage: (
                {each["service"]: each["input"]["fingerprints"] for each in coverage["services"] if each["input"]}
                == {"quiet": 10, "loud": 240}
            ),
        )
        of = {service: document("diff", service)["coverage"] for service in ("quiet", "loud")}
    assert (of["quiet"]["fingerprints"], of["quiet"]["evicted"]) == (10, 0)
    assert of["loud"]["evicted"] == 240 - of["loud"]["fingerprints"] > 0
