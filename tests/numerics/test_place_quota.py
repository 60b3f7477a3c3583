"""Places that workers share: each worker gets at least one, even if another requests all."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.numerics.online_state import ServiceSite
from brickd.analysis.numerics.place_quota import PlaceQuota

SERVICES, WORKERS, KERNELS = "ab", 4, 12
places = st.builds(ServiceSite, st.sampled_from(SERVICES), st.integers(0, KERNELS).map(str), st.just(0))


@pytest.mark.ci
@given(st.lists(st.tuples(places, st.integers(0, WORKERS - 1), st.booleans()), max_size=80))
def test_places_are_bounded_and_shared_fairly(
    wanted: list[tuple[ServiceSite, int, bool]],
) -> None:
    room, taken = PlaceQuota(5, 8, ()), dict[ServiceSite, str]()
    for place, number, leaves in wanted:
        worker = f"{place.service}{number}"
        if leaves:
            room.leave(place)
            taken.pop(place, None)
            continue
        if not room.take(place, worker):
            gone = room.make(place, worker)
            full = Counter(each.service for each in taken)[place.service] == 5
            rivals = [holder for each, holder in taken.items() if each.service == place.service or not full]
            richest = max(Counter(rivals).values())
            assert (gone is not None) == (richest >= rivals.count(worker) + 2)
            if gone is None:
                continue
            assert rivals.count(taken.pop(gone)) == richest
        taken[place] = worker
        assert len(taken) <= 8
        assert max(Counter(each.service for each in taken).values()) <= 5


def test_the_newest_place_of_the_largest_holder_is_freed() -> None:
    first, second, third = (ServiceSite("a", name, 0) for name in ("k", "l", "m"))
    room = PlaceQuota(2, 2, [(first, "one"), (second, "one")])
    assert not room.take(third, "two")
    assert room.make(third, "two") == second
    assert room.take(first, "two")
    assert room.take(third, "two")


def test_a_place_that_changes_its_worker_counts_only_for_the_new_one() -> None:
    first, second, third = (ServiceSite("a", name, 0) for name in ("k", "l", "m"))
    room = PlaceQuota(2, 2, [(first, "one"), (second, "two")])
    assert room.take(first, "two")
    assert room.make(third, "one") == second


def test_a_freed_place_counts_for_no_worker() -> None:
    first, second, third = (ServiceSite("a", name, 0) for name in ("k", "l", "m"))
    room = PlaceQuota(2, 2, [(first, "one"), (second, "one")])
    room.leave(first)
    room.leave(second)
    assert room.take(first, "two")
    assert room.take(second, "three")
    assert room.make(third, "four") is None
    room.leave(second)
    assert room.take(second, "two")
    assert room.make(third, "four") == second
