"""The traffic, the prefix cache and the scheduler of the reference engine. No model runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from benchmarks.engine.prefix_cache import BLOCK, PrefixCache, keys
from benchmarks.engine.scheduler import Scheduler, Shape, Slice
from benchmarks.engine.traffic import END, SYSTEM_LENGTHS, Request, Traffic, longest
from benchmarks.engine.truth import NOTHING, Lineage, chained
from hypothesis import given
from hypothesis import strategies as st

VOCABULARY = 512

# ---- traffic


def drawn(seed: int, replica: int, system: int = 20) -> list[list[Request]]:
    traffic = Traffic(seed, replica, vocabulary=VOCABULARY, system=system, batch=8, load=0.5)
    return [list(traffic.arrivals()) for _ in range(200)]


@pytest.mark.parametrize("system", SYSTEM_LENGTHS)
def test_replicas_get_different_requests_with_the_same_beginning(system: int) -> None:
    assert drawn(1, 0, system) == drawn(1, 0, system)
    prompts = [request.prompt for replica in range(3) for step in drawn(1, replica, system) for request in step]
    assert len(set(prompts)) == len(prompts) > 60
    common = next(n for n, tokens in enumerate(zip(*prompts, strict=False)) if len(set(tokens)) > 1)
    assert common == (system + 8 if system else 4)
    other = [request.prompt for step in drawn(2, 0, system) for request in step]
    assert (other[0][:common] == prompts[0][:common]) == (system == 0)
    assert all(len(each) <= longest(system) for each in prompts)


def test_other_requests_of_one_service_have_its_beginning() -> None:
    def prompts(requests: int | None) -> list[tuple[int, ...]]:
        traffic = Traffic(1, 0, vocabulary=VOCABULARY, system=20, batch=8, load=0.5, requests=requests)
        return [request.prompt for _ in range(50) for request in traffic.arrivals()]

    assert prompts(None) == prompts(1)
    assert set(prompts(1)).isdisjoint(prompts(2))
    assert prompts(1)[0][:28] == prompts(2)[0][:28]


# ---- the prefix cache


def test_a_key_means_all_tokens_before_its_block() -> None:
    tokens = list(range(3 * BLOCK))
    assert len(list(keys(tokens))) == len(set(keys(tokens))) == 3
    assert list(keys(tokens[:-1])) == list(keys(tokens))[:2]
    changed = [9999, *tokens[1:]]
    assert set(keys(changed)).isdisjoint(keys(tokens))


def filled(cache: PrefixCache[str], tokens: Sequence[int]) -> list[int]:
    """Take blocks for these tokens, and publish the blocks that are full."""
    numbers = [number for _ in range(0, len(tokens), BLOCK) if (number := cache.take()) is not None]
    for number, key in zip(numbers, keys(tokens), strict=False):
        cache.publish(number, key, f"block {number}")
    return numbers


def test_an_equal_beginning_is_reused_with_its_note_but_never_the_last_token() -> None:
    cache, tokens = PrefixCache[str](8), list(range(2 * BLOCK))
    first = filled(cache, tokens)
    assert cache.reuse(tokens) == first[:1]
    assert cache.reuse([*tokens, 7]) == first
    assert cache.reuse([*tokens[:-1], 7, 7]) == first[:1]
    assert cache.note(first[1]) == f"block {first[1]}"


def test_a_block_is_given_out_again_only_without_references() -> None:
    cache, tokens = PrefixCache[str](4), list(range(2 * BLOCK))
    first = filled(cache, tokens)
    again = cache.reuse([*tokens, 7])
    cache.release(first)
    assert (cache.free, cache.take(), cache.take()) == (1, 3, None)
    cache.release(again)
    assert cache.free == 2
    assert cache.take() == first[1]  # the cache forgets the end of a prefix before its beginning
    assert cache.reuse([*tokens, 7]) == first[:1]


def test_blocks_without_content_are_used_before_content_is_forgotten() -> None:
    cache, tokens = PrefixCache[str](4), list(range(BLOCK + 1))
    full, part = filled(cache, tokens)
    cache.release([full, part])
    assert [cache.take(), cache.take()] == [part, 3]
    assert cache.reuse(tokens) == [full]


def test_the_first_of_two_blocks_with_the_same_content_is_reused() -> None:
    cache, tokens = PrefixCache[str](3), list(range(BLOCK + 1))
    first, second = filled(cache, tokens[:-1])[0], filled(cache, tokens[:-1])[0]
    assert cache.reuse(tokens) == [first]
    cache.release([first])
    cache.release([first, second])
    assert cache.take() == second
    assert cache.reuse(tokens) == [first]


def test_the_padding_block_is_never_given_out() -> None:
    cache = PrefixCache[str](3)
    assert [cache.take(), cache.take(), cache.take()] == [1, 2, None]


# ---- the scheduler


def request(number: int, length: int = 20, answer: int = 4) -> Request:
    return Request(number, tuple(8 + (number * 131 + n) % 500 for n in range(length)), answer, number)


def computed(scheduler: Scheduler) -> Iterator[list[Slice]]:
    """Yield each step until no request is left; each new token is 9."""
    while slices := scheduler.plan():
        yield slices
        scheduler.advance(slices, Shape(len(slices), max(each.length for each in slices), 64), [9] * len(slices))


def test_each_token_is_computed_once_after_all_before_it() -> None:
    scheduler = Scheduler(blocks=64, batch=5, chunk=8)
    for number in range(6):
        scheduler.add(request(number))
    seen: dict[int, list[int]] = {number: [] for number in range(6)}
    for slices in computed(scheduler):
        assert len(slices) <= 4 or all(each.length == 1 for each in slices)
        for generation, start, length in slices:
            seen[generation.request.number] += range(start, start + length)
    assert all(positions == list(range(23)) for positions in seen.values())
    assert (scheduler.counts.finished, scheduler.counts.tokens, scheduler.counts.preempted) == (6, 24, 0)


def test_a_step_is_all_prefill_or_all_decode_and_they_take_turns() -> None:
    scheduler = Scheduler(blocks=64, batch=4, chunk=8)
    scheduler.add(request(0, length=2, answer=20))
    kinds = []
    for number, slices in enumerate(computed(scheduler)):
        kinds.append({each.generation.left > 1 for each in slices})
        if number == 2:
            scheduler.add(request(1, length=40, answer=1))
    assert all(len(each) == 1 for each in kinds)
    chunks = [number for number, each in enumerate(kinds) if each == {True}]
    assert len(chunks) == 6
    assert all(after - before == 2 for before, after in pairwise(chunks[1:]))


def test_requests_join_and_leave_the_running_batch() -> None:
    scheduler = Scheduler(blocks=64, batch=2, chunk=32)
    for number, answer in enumerate((2, 9, 9)):
        scheduler.add(request(number, answer=answer))
    batches = [{each.generation.request.number for each in slices} for slices in computed(scheduler)]
    assert {0, 1} in batches
    assert {1, 2} in batches
    assert max(map(len, batches)) == 2


def test_an_answer_ends_with_the_end_token() -> None:
    scheduler = Scheduler(blocks=64, batch=2, chunk=32)
    scheduler.add(request(0, answer=9))
    slices = scheduler.plan()
    (finished,) = scheduler.advance(slices, Shape(1, 20, 32), [END])
    assert (finished.tokens[-1], finished.blocks, scheduler.plan()) == (END, [], [])


def test_without_room_the_last_admitted_is_preempted_and_computed_again() -> None:
    scheduler = Scheduler(blocks=1 + 4, batch=2, chunk=32)
    for number in range(3):
        scheduler.add(request(number, length=BLOCK * 2 - 2, answer=8 if number else 30))
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for slices in computed(scheduler):
        for generation, start, length in slices:
            seen[generation.request.number] += range(start, start + length)
            assert start > 0 or generation.lineage == NOTHING
            # request 2 arrived when the others were already running
            assert generation.request.number < 2 or seen[1].count(0) == 2
    assert scheduler.counts.preempted > 0
    assert scheduler.counts.finished == 3
    assert seen[0] == list(range(59))
    assert sorted(set(seen[1])) == list(range(37))
    assert len(seen[1]) > 37


def test_a_preempted_generation_is_not_in_the_step_that_took_its_room() -> None:
    scheduler = Scheduler(blocks=1 + 4, batch=4, chunk=32)
    for number in range(2):
        scheduler.add(request(number, length=BLOCK * 2 - 2, answer=8))
    for slices in computed(scheduler):
        assert all(each.generation in scheduler.running for each in slices)
        blocks = [block for each in slices for block in each.generation.blocks]
        assert len(blocks) == len(set(blocks))
        assert all(len(each.generation.blocks) * BLOCK >= each.start + each.length for each in slices)


def test_lineage_travels_with_reused_blocks() -> None:
    scheduler = Scheduler(blocks=64, batch=2, chunk=BLOCK)
    common = tuple(range(8, 8 + BLOCK))
    for number in range(2):
        scheduler.add(Request(number, (*common, 100 + number, 7), 1, 0))
        if number == 0:
            first = scheduler.plan()
            scheduler.advance(first, Shape(1, BLOCK, BLOCK), [0])
            lineage = first[0].generation.lineage
            assert lineage == NOTHING.after(0, BLOCK, Shape(1, BLOCK, BLOCK))
    slices = scheduler.plan()
    assert [(each.start, each.generation.lineage) for each in slices] == [(BLOCK, lineage)] * 2
    assert scheduler.counts.reused == BLOCK


# ---- lineage and history


def test_lineage_tells_borders_then_widths_then_batches_apart() -> None:
    one = NOTHING.after(0, 8, Shape(2, 8, 16))
    assert one == NOTHING.after(0, 8, Shape(2, 8, 16))

    def equal(other: Lineage) -> list[bool]:
        return [mine == theirs for mine, theirs in zip(one, other, strict=True)]

    assert equal(NOTHING.after(0, 8, Shape(3, 8, 16))) == [True, True, False]
    assert equal(NOTHING.after(0, 8, Shape(2, 8, 32))) == [True, False, False]
    assert equal(NOTHING.after(0, 8, Shape(2, 9, 16))) == [True, False, False]
    assert equal(NOTHING.after(0, 7, Shape(2, 8, 16))) == [False, False, False]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4), st.integers(0, 3), st.integers(1, 2**64 - 1))
def test_a_digest_depends_on_each_number(numbers: list[int], at: int, change: int) -> None:
    other = list(numbers)
    other[at % len(other)] ^= change
    assert chained(*numbers) != chained(*other)
