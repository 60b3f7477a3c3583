"""The spool of a recording (a buffer in memory): the drain never waits for a disk, and lost slots are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rings import SLOT, Rings, rings
from tapes import Read, begin, clean, flush, memory, read_fd
from test_recording_rings import numbered, taken

from brickd.recording.chunks import records
from brickd.shm import _reader

LEAST = 3 * SLOT  # the smallest spool: two chunk heads and a slot


def positions(seen: Read) -> dict[tuple[int, int], list[int]]:
    """Return the positions of the slots in a file, keyed by worker and lane; assert that each slot is unchanged."""
    found: dict[tuple[int, int], list[int]] = {}
    for chunk in seen.chunks:
        each = records(chunk.body)
        count = len(each.slots) // SLOT
        assert each.slots == numbered(count, first=each.first + 1).tobytes()
        found.setdefault((each.worker, each.lane), []).extend(range(each.first, each.first + count))
    return found


@contextmanager
def workers(many: int, lanes: int = 1, slots: int = 1 << 10) -> Iterator[list[tuple[Rings, _reader.Drain]]]:
    """Return rings of several workers, each with its own drain."""
    if not many:
        yield []
        return
    with rings(lanes=lanes, span_slots=slots) as r, workers(many - 1, lanes, slots) as others:
        yield [(r, r.drain()), *others]


def work(r: Rings, drain: _reader.Drain, lane: int, count: int) -> None:
    """Add spans, drain them, and free their slots."""
    r.add(lane, "span", numbered(count, first=1 + r.heads.get((lane, "span"), 0)))
    assert _reader.drain([drain])[2] == []
    r.publish(drain)


TURNS = st.lists(
    st.one_of(
        # the worker, the lane and the number of spans
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(1, 70)),
        st.sampled_from(["write", "mark", "next file", "clear"]),
    ),
    max_size=30,
)


@given(st.integers(LEAST, 60 * SLOT) | st.just(1 << 20), st.sampled_from([LEAST + 5 * SLOT, 10 * SLOT, 1 << 20]), TURNS)
def test_drained_slots_are_recorded_in_order_or_counted(
    size: int, limit: int, turns: list[tuple[int, int, int] | str]
) -> None:
    spool = _reader.Spool(size)
    given_, lost = dict.fromkeys([(n, lane) for n in range(2) for lane in range(2)], 0), 0
    found: dict[tuple[int, int], list[int]] = {each: [] for each in given_}

    def end(recording: _reader.Recording, fd: int) -> None:
        recording.close()
        seen = read_fd(fd)
        assert clean(seen.end)
        nonlocal lost
        lost += seen.end.refused.slots
        for key, each in positions(seen).items():
            found[key] += each

    def write(recording: _reader.Recording, upto: int) -> None:
        with suppress(OSError):  # the file is full, so the rest waits for the next file
            recording.write(spool, upto)

    with workers(2, lanes=2) as both:
        for number, (_, drain) in enumerate(both):
            drain.record_into(spool, number)
        mark, remaining = 0, iter(turns)
        for last in (*[False] * turns.count("next file"), True):
            with memory() as fd:
                recording = begin(fd, 1 << 20 if last else limit)
                for turn in remaining:
                    match turn:
                        case (int(number), int(lane), int(count)):
                            work(*both[number], lane, count)
                            given_[number, lane] += count
                        case "mark":
                            mark, _ = spool.ready()
                        case "write":
                            write(recording, mark)
                        case "clear":
                            spool.clear()
                        case "next file":
                            break
                if last:
                    flush(recording, spool)
                end(recording, fd)
    assert lost == spool.refused_slots
    assert sum(map(len, found.values())) + lost == sum(given_.values())
    for key, each in found.items():
        assert each == sorted(set(each))
        assert all(0 <= position < given_[key] for position in each)


def test_a_stuck_disk_loses_only_slots_beyond_the_spool() -> None:
    with workers(2) as ((recorded, drain), (other, alone)), memory() as fd:
        spool, recording = _reader.Spool(100 * SLOT), begin(fd)
        drain.record_into(spool)
        for count in (40, 30, 20, 5, 60, 2):  # no thread writes here, as if it waited for a disk
            work(recorded, drain, 0, count)
            work(other, alone, 0, count)
            assert taken(drain) == taken(alone)
        assert (drain.spans, spool.refused_slots) == (157, 5 + 60)
        flush(recording, spool)  # now the disk accepts data again
        work(recorded, drain, 0, 3)
        flush(recording, spool)
        recording.close()
        seen = read_fd(fd)
        kept = [*range(90), *range(155, 160)]
        assert positions(seen) == {(0, 0): kept}
        assert (clean(seen.end), seen.end.refused) == (True, (0, 0, 65))


def test_a_pass_into_a_full_spool_never_waits_for_the_disk() -> None:
    """There is no file yet, so the drain can use only the memory of the spool."""
    with workers(1, slots=1 << 12) as ((r, drain),), memory() as fd:
        spool = _reader.Spool(1 << 16)
        drain.record_into(spool, 3)
        for _ in range(3):
            work(r, drain, 0, 1000)
        _, numbers = spool.ready()
        assert numbers == {3}
        recording = begin(fd)
        flush(recording, spool)
        recording.close()
        assert positions(read_fd(fd)) == {(3, 0): list(range(1000))}
        assert spool.refused_slots == 2000


def test_waiting_slots_are_written_up_to_the_mark() -> None:
    with workers(2) as both, memory() as fd:
        spool, recording = _reader.Spool(), begin(fd)
        for number, (r, drain) in enumerate(both, start=1):
            drain.record_into(spool, number)
            work(r, drain, 0, 10)
            if number == 1:
                mark, numbers = spool.ready()
                assert numbers == {1}
        recording.write(spool, mark)
        assert positions(read_fd(fd)) == {(1, 0): list(range(10))}
        assert spool.ready()[1] == {2}
        recording.write(spool, 2**64 - 1)  # a position beyond the end means that everything is written
        recording.close()
        assert positions(read_fd(fd)).keys() == {(1, 0), (2, 0)}


def test_a_waiting_writer_wakes_at_a_quarter_of_the_spool() -> None:
    spool = _reader.Spool(100 * SLOT)
    woken: list[str] = []
    turn = threading.Semaphore(0)

    def wait() -> None:
        for _ in range(2):
            spool.wait(600_000)
            woken.append("again")
            turn.release()

    thread = threading.Thread(target=wait)
    thread.start()
    with workers(1) as ((r, drain),):
        drain.record_into(spool)
        work(r, drain, 0, 10)
        assert woken == []
        work(r, drain, 0, 20)
        turn.acquire()
        spool.wake()
        thread.join()
    assert len(woken) == 2
    spool.wait(0)


@pytest.mark.parametrize("size", [-1, 0, LEAST - 1, (1 << 40) + 1])
def test_a_spool_of_no_capacity_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a spool has 192 to 1099511627776 bytes, not {size}"):
        _reader.Spool(size)
    with pytest.raises(ValueError, match=r"the wait is -1 ms, expected 0 to"):
        _reader.Spool().wait(-1)


@pytest.mark.ci
def test_a_second_thread_draining_into_a_spool_is_refused() -> None:
    with workers(2, slots=1 << 14) as both, memory() as fd:
        spool, recording = _reader.Spool(), begin(fd, 1 << 26)

        def flood(number: int) -> None:
            r, drain = both[number]
            drain.record_into(spool, number)
            for _ in range(12):
                work(r, drain, 0, 16_000)

        threads = [threading.Thread(target=flood, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flush(recording, spool)
        recording.close()
        seen = read_fd(fd)
        assert clean(seen.end)
        assert sum(map(len, positions(seen).values())) + spool.refused_slots == 2 * 12 * 16_000


@pytest.mark.ci
def test_of_two_threads_writing_at_once_one_is_refused_without_damage() -> None:
    with workers(1, slots=1 << 12) as ((r, drain),), memory() as fd:
        spool, recording = _reader.Spool(), begin(fd, 1 << 28)
        drain.record_into(spool)
        refused, body = 0, bytes(3_000_000)

        def write(number: int) -> None:
            nonlocal refused
            for _ in range(30):
                try:
                    if number:
                        flush(recording, spool)
                    else:
                        recording.append(_reader.CHUNK_SNAPSHOT, 0, body)
                except RuntimeError as error:
                    assert "only one may write at a time" in str(error)  # noqa: PT017
                    refused += not number

        threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1, 1)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            work(r, drain, 0, 1000)
        for thread in threads:
            thread.join()
        flush(recording, spool)
        recording.close()
        seen = read_fd(fd)
        assert clean(seen.end)
        snapshots = [chunk for chunk in seen.chunks if chunk.kind == _reader.CHUNK_SNAPSHOT]
        assert len(snapshots) + refused == 30
        seen.chunks = [chunk for chunk in seen.chunks if chunk.kind == _reader.CHUNK_RECORDS]
        assert positions(seen) == {(0, 0): list(range(30_000))}


def test_an_ended_spool_accepts_nothing_and_has_no_key() -> None:
    with workers(1) as ((r, drain),), memory() as fd:
        spool = _reader.Spool(1 << 20, redacts=True)
        drain.record_into(spool)
        work(r, drain, 0, 10)
        drain.record_into(None)
        spool.end()
        uses: list[Callable[[], object]] = [spool.ready, spool.clear, spool.end, lambda: begin(fd).write(spool, 0)]
        for use in uses:
            with pytest.raises(RuntimeError, match="another thread"):
                use()
        for use in (lambda: spool.key_name(7), lambda: spool.step(7), lambda: spool.tensors(bytes(192))):
            with pytest.raises(RuntimeError, match="its key is erased"):
                use()
        spool.wake()
        assert spool.refused_slots == 0
