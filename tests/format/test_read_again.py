"""The reader reads data again if it changes during the copy. In these tests, a writer acts between any two reads."""

from __future__ import annotations

import ctypes
import os
import struct
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import dtypes
import forge
import numpy as np
import pytest
from conftest import ROOT
from faults import NATIVE, Compile
from rings import Rings, events, rings, spans

READER = ROOT / "brickd" / "reader"
SOURCES = (NATIVE / "between.c", READER / "core" / "segment_copy.c", READER / "core" / "summary_math.c")
PATHS, SLOTS = 128, 16
TRIES = 16  # the number of tries in segment_copy.c
Writer = Callable[[int], None]  # called before each read of the reader, with the number of the read (from 1)
_CALL = ctypes.CFUNCTYPE(None)


class Between:
    """A reader of one segment. Before each read, it calls the test's writer."""

    def __init__(self, library: ctypes.CDLL, made: Rings) -> None:
        self._library, self.rings = library, made
        self.reads, self.reason = 0, ""

    def sequence(self, path: int, number: int) -> None:
        at = forge.regions(self.rings.page)["area"] + 8 * path
        os.pwrite(self.rings.fd, struct.pack("<Q", number), at)

    def entry(self, path: int, count: int, *, total: int | None = None, buckets: int | None = None) -> None:
        """Write the summary of a path, with spans of 10 ticks."""
        total = 10 * count if total is None else total
        self.rings.put("summary", path, count=count, total=total, squares=total * 10, min=10, max=10, elements=total)
        self.rings.put("summary", path, histogram=count if buckets is None else buckets)

    def summaries(self, writer: Writer) -> tuple[dtypes.Array | None, tuple[int, int]]:
        """Return the copy (None if it was refused), the number of entries with an odd sequence, and the number of
        changing entries.
        """
        into, doubt = np.zeros(PATHS, dtypes.dtype("summary")), (ctypes.c_uint64 * 2)()
        whole = self._ask(self._library.between_summaries, writer, PATHS, into.ctypes, ctypes.byref(doubt))
        return into if whole else None, (doubt[0], doubt[1])

    def ring(self, writer: Writer, *, of_events: bool = False) -> tuple[int, list[int]] | None:
        """Return the index of the first slot, and the numbers of the records; None if the ring was refused."""
        to, first = np.zeros(SLOTS, dtypes.dtype("record")), ctypes.c_uint64()
        count = self._ask(self._library.between_ring, writer, int(of_events), to.ctypes, ctypes.byref(first))
        return None if count < 0 else (first.value, [int(each) for each in to["sequence"][:count]])

    def _ask(self, what: Any, writer: Writer, number: int, to: Any, also: Any) -> int:
        self.reads = 0
        reason = ctypes.create_string_buffer(200)

        def before() -> None:
            self.reads += 1
            writer(self.reads)

        what.restype = ctypes.c_int64 if what is self._library.between_ring else ctypes.c_int
        result = int(what(self.rings.fd, _CALL(before), number, to.data_as(ctypes.c_void_p), also, reason))
        self.reason = reason.value.decode()
        return result


@pytest.fixture
def between(compiled: Compile) -> Iterator[Between]:
    library = compiled("between.so", SOURCES, "-shared", "-fPIC", "-I", str(READER))
    with rings(paths=PATHS, span_slots=SLOTS, event_slots=SLOTS) as made:
        yield Between(ctypes.CDLL(str(library)), made)


# ---- summaries ---------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("path", [0, *(pytest.param(each, marks=pytest.mark.ci) for each in (63, 64, 127))])
def test_a_span_that_ends_during_the_copy_is_copied_whole_or_not(between: Between, path: int) -> None:
    for enters in range(1, 11):
        for leaves in range(enters, 12):
            between.sequence(path, 2)
            between.entry(path, 1)

            def writer(read: int, enters: int = enters, leaves: int = leaves) -> None:
                if read == enters:
                    between.sequence(path, 3)
                    between.entry(path, 2, total=10)
                if read == leaves:
                    between.entry(path, 2)
                    between.sequence(path, 4)

            copy, doubt = between.summaries(writer)
            assert copy is not None, between.reason
            row = copy[path]
            assert (int(row["count"]), int(row["total"])) in ((1, 10), (2, 20)), (enters, leaves)
            assert doubt == (0, 0)
            assert int(copy["count"].sum()) == row["count"]


def test_a_summary_that_changes_at_each_try_is_taken_and_marked_as_moving(between: Between) -> None:
    between.sequence(5, 2)
    between.entry(5, 1)
    copy, doubt = between.summaries(lambda read: between.sequence(5, 2 * read))
    assert copy is not None
    assert (doubt, between.reads) == ((0, 1), 3 + 3 * TRIES)


def test_a_summary_whose_writer_never_leaves_is_taken_and_marked_as_odd(between: Between) -> None:
    between.sequence(5, 3)
    between.entry(5, 1)
    copy, doubt = between.summaries(lambda _: None)
    assert copy is not None
    assert (doubt, between.reads) == ((1, 0), 3 + 3 * TRIES)


def test_a_summary_unchanged_at_the_last_try_is_reliable(between: Between) -> None:
    between.entry(5, 1)
    copy, doubt = between.summaries(lambda read: between.sequence(5, 2 * min(read, 3 * TRIES + 1)))
    assert copy is not None
    assert doubt == (0, 0)


@pytest.mark.parametrize(
    ("before", "after", "ended"),
    [(2, 4, 1), (2, 3, 1), (3, 3, 1), (3, 4, 1), (3, 5, 2), (3, 6, 2), (2, 6, 2), (2, 5, 2)],
)
def test_a_moving_summary_may_differ_only_by_the_spans_that_ended_meanwhile(
    between: Between, before: int, after: int, ended: int
) -> None:
    def writer(read: int) -> None:
        between.sequence(5, before if read % 3 == 1 else after)

    for apart in (-ended - 1, -ended, 0, ended, ended + 1):
        between.entry(5, 10, buckets=10 + apart)
        copy, _ = between.summaries(writer)
        assert (copy is not None) == (abs(apart) <= ended), (apart, between.reason)


# ---- a process's own summaries --------------------------------------------------------------------------------------

WORDS = 144  # the number of 64-bit words in a summary
OWN_TRIES = 1000  # the number of tries in python/own_totals.c
Words = ctypes.c_uint64 * WORDS


class Own:
    """A summary in this process, and a reader of this summary.

    The reader calls the test's writer before each load except the first.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.sequence, self.words = ctypes.c_uint64(2), Words(*WORDS * [1])
        self.loads = 0

    def enter(self) -> None:
        """Write only the first half of what the end of a span writes."""
        self.sequence.value += 1
        self.words[: WORDS // 2] = [self.words[-1] + 1] * (WORDS // 2)

    def leave(self) -> None:
        self.words[:] = [self.words[0]] * WORDS
        self.sequence.value += 1

    def copy(self, writer: Writer) -> tuple[bool, set[int]]:
        """Return whether the summary stayed unchanged during the copy, and the set of the values in the copy."""
        self.loads = 0

        def before() -> None:
            self.loads += 1
            writer(self.loads)

        to = Words()
        still = self._library.totals_copy(ctypes.byref(self.sequence), self.words, to, _CALL(before))
        return bool(still), set(to)


@pytest.fixture
def own(compiled: Compile) -> Own:
    included = zlib.crc32(
        (ROOT / "agent" / "src" / "python/own_totals.c").read_bytes()
    )  # the list includes each file whose change requires a new compilation
    python = ("-Wno-unused-parameter", "-I", sysconfig.get_path("include"))
    flags = ("-shared", "-fPIC", *python, f"-DINCLUDED={included}")
    return Own(ctypes.CDLL(str(compiled("totals.so", (NATIVE / "totals.c",), *flags))))


def test_a_process_reads_its_own_summary_consistently_despite_other_threads(own: Own) -> None:
    for enters in (1, 2, 70, 71, 72, 142, 143, 144, 145):
        for leaves in range(enters, enters + 300, 13):
            before = own.words[-1]

            def writer(load: int, enters: int = enters, leaves: int = leaves) -> None:
                if load == enters:
                    own.enter()
                if load == leaves:
                    own.leave()

            still, copied = own.copy(writer)
            assert still
            assert copied in ({before}, {before + 1}), (enters, leaves)
            if own.sequence.value % 2:
                own.leave()


@pytest.mark.ci
def test_a_process_reports_its_constantly_changing_summary_as_moving(own: Own) -> None:
    own.enter()
    # This is the number of loads in one try. A try does not load the sum of squares. It loads the sequence again only
    # if the sequence was even the first time.
    once = WORDS - 1
    assert own.copy(lambda _: None)[0] is False
    assert own.loads == OWN_TRIES * once

    def writer(load: int) -> None:
        if load % (once + 1) == 1:
            own.sequence.value += 2

    own.leave()
    assert own.copy(writer)[0] is False
    assert own.loads == OWN_TRIES * (once + 1)


# ---- rings -------------------------------------------------------------------------------------------------------


def fill(between: Between, ring: str, until: int) -> None:
    """Write records until the ring has this head. Each record has the number of its slot plus 1."""
    head = between.rings.heads.get((0, ring), 0)
    make = events if ring == "event" else spans
    for number in range(head, until):
        between.rings.add(0, ring, make({"sequence": number + 1}))


def test_a_copied_ring_is_valid_although_the_file_was_truncated_after_it(between: Between) -> None:
    fill(between, "span", 5)
    end = forge.place(between.rings.page, "event_ring")
    assert between.ring(lambda _: os.ftruncate(between.rings.fd, end)) == (0, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("ring", ["span", pytest.param("event", marks=pytest.mark.ci)])
@pytest.mark.parametrize("tail", [0, 5, 15])
def test_slots_overwritten_while_a_ring_is_copied_are_not_in_the_copy(between: Between, ring: str, tail: int) -> None:
    seen = set()
    for read in range(1, 7):
        for given in (0, 1, 7, SLOTS - 1, SLOTS):
            between.rings.heads.clear()
            fill(between, ring, tail + SLOTS)
            between.rings.tail(0, ring, tail)

            def writer(at: int, read: int = read, given: int = given) -> None:
                if at == read:
                    between.rings.tail(0, ring, tail + given)
                    fill(between, ring, tail + SLOTS + given)

            copy = between.ring(writer, of_events=ring == "event")
            assert copy is not None, between.reason
            first, numbers = copy
            assert numbers == list(range(first + 1, first + 1 + len(numbers))), (read, given)
            assert first in (tail, tail + given)
            assert first + len(numbers) in (tail + SLOTS, tail + SLOTS + given)
            seen.add((first - tail, len(numbers)))
    assert {(0, SLOTS), (7, 9), (SLOTS - 1, 1), (SLOTS, 0), (7, SLOTS)} <= seen


def test_a_tail_that_goes_back_during_the_copy_repeats_it(between: Between) -> None:
    fill(between, "span", 10)
    between.rings.tail(0, "span", 7)
    calm = between.ring(lambda _: None)
    once = between.reads
    assert calm == (7, [8, 9, 10])
    assert between.ring(lambda read: between.rings.tail(0, "span", 6 if read > 3 else 7)) == (6, [7, 8, 9, 10])
    assert between.reads == 2 * once


@pytest.mark.parametrize("read", [2, 4])
def test_a_torn_tail_is_read_again(between: Between, read: int) -> None:
    fill(between, "span", 10)
    between.rings.tail(0, "span", 7)

    def writer(at: int) -> None:
        if at == read:
            between.rings.tail(0, "span", 7, 0)
        elif at == read + 1:
            between.rings.tail(0, "span", 8)

    assert between.ring(writer) == (8, [9, 10])


def test_a_tail_that_a_killed_consumer_left_halfway_is_at_its_next_position(between: Between) -> None:
    fill(between, "span", 10)
    for next_ in (7, 8, 10):
        between.rings.tail(0, "span", 7, next_ ^ forge.U64)
        assert between.ring(lambda _: None) == (next_, list(range(next_ + 1, 11)))
    for impossible in (6, 11):
        between.rings.tail(0, "span", 7, impossible ^ forge.U64)
        assert between.ring(lambda _: None) is None, "no consumer moves a tail back, or beyond the head"
    fill(between, "span", 20)
    between.rings.tail(0, "span", 0, 4 ^ forge.U64)
    assert between.ring(lambda _: None) == (4, list(range(5, 21))), (
        "only the position from which the reader continues must be in the ring"
    )
    between.rings.tail(0, "span", 0, 3 ^ forge.U64)
    assert between.ring(lambda _: None) is None


def test_a_ring_with_an_impossible_tail_at_each_try_is_refused(between: Between) -> None:
    fill(between, "span", 10)
    between.rings.tail(0, "span", 11)
    assert between.ring(lambda _: None) is None
    assert between.reads == 2 * TRIES
    assert between.reason == "lane 0: head 10 and tail 11 are impossible in a ring of 16 slots"
    between.rings.tail(0, "span", 10)
    assert between.ring(lambda _: None) == (10, [])
    fill(between, "span", 10 + SLOTS)
    assert between.ring(lambda _: None) == (10, list(range(11, 11 + SLOTS)))
    fill(between, "span", 11 + SLOTS)
    assert between.ring(lambda _: None) is None, "the writer has overwritten a slot that the tail has not passed"


def test_a_tail_valid_at_the_last_try_is_accepted(between: Between) -> None:
    fill(between, "span", 10)
    last = 2 * TRIES
    assert between.ring(lambda read: between.rings.tail(0, "span", 9 if read >= last else 11)) == (9, [10])
