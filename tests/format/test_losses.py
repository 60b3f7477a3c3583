"""The losses of a worker, from made-up counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from forge import golden, header_value, put, seal, segment_of

from brickd.shm.ledger import ledger_of
from brickd.shm.losses import Loss, _raised, losses
from brickd.shm.table_needs import table_needs

LANES, NAMES, PATHS, SITES = (header_value(golden(), what) for what in ("lanes", "names", "paths", "sites"))


def lost(
    *, lanes_used: int = 1, lane: Mapping[str, Any] | None = None, drained: bool = False, **process: int
) -> list[Loss]:
    """Return the losses of the golden segment with these counters."""
    image = bytearray(golden())
    put(image, "process", process)
    for number in range(LANES):
        put(
            image,
            "lane",
            {"opened": int(number < lanes_used), "span_dropped": (0, 0), "event_dropped": 16 * (0,), "amounts": 0},
            number,
        )
    put(image, "lane", lane or {}, 0)
    with segment_of(seal(image)) as segment:
        reading = replace(segment.read(), drained=drained)
    return losses(reading, ledger_of(reading))


def test_a_worker_without_losses_has_no_message() -> None:
    assert lost() == []


@pytest.mark.parametrize(
    ("counted", "kind", "settings"),
    [
        ({"no_lane": 7, "lanes_refused": 1, "lanes_used": LANES}, "lanes", (f"BRICKD_LANES={2 * LANES}",)),
        ({"no_lane": 7}, "opening", ()),
        ({"names": NAMES}, "tables", (f"BRICKD_NAMES={2 * NAMES}",)),
        ({"names": 2**64 - 1, "paths": PATHS}, "tables", (f"BRICKD_NAMES={2 * NAMES}", f"BRICKD_PATHS={2 * PATHS}")),
        ({"names": NAMES, "names_refused": 3 * NAMES}, "tables", (f"BRICKD_NAMES={4 * NAMES}",)),
        ({"names": NAMES, "names_refused": 2**64 - 1}, "tables", (f"BRICKD_NAMES={16 * NAMES}",)),
        ({"names_refused": 3}, "names", ()),
        ({"no_lane": 7, "lanes_refused": 9, "lanes_used": LANES}, "lanes", (f"BRICKD_LANES={LANES + 9}",)),
        ({"sites": SITES, "sites_refused": SITES + 1}, "sites", (f"BRICKD_SITES={2 * SITES + 1}",)),
        ({"sites": SITES, "sites_refused": 7}, "sites", (f"BRICKD_SITES={2 * SITES}",)),
        ({"sites": SITES - 1, "sites_refused": 7}, "sites", ()),
        ({"tensors_refused": 2}, "tensors", ()),
        ({"blocks_refused": 2}, "memory", ()),
        ({"lane": {"rejected": (4, 0)}}, "clock", ()),
        ({"lane": {"rejected": (0, 4)}}, "nesting", ()),
        ({"lane": {"span_dropped": (5, 0)}}, "details", ()),
        ({"lane": {"nested": 6}}, "signals", ()),
        ({"lane": {"amounts": 2}}, "amounts", ()),
        ({"lane": {"event_dropped": (0, 3, *14 * (0,))}}, "events", ()),
    ],
)
def test_each_counter_has_its_cause_and_a_setting_to_raise(
    counted: dict[str, Any], kind: str, settings: tuple[str, ...]
) -> None:
    (loss,) = lost(**counted)
    assert (loss.kind, loss.settings) == (kind, settings)
    assert str(loss).endswith(loss.text)
    assert all(setting.partition("=")[0] in str(loss) for setting in settings)
    assert loss.spans == (kind in ("lanes", "opening", "memory", "clock", "nesting"))


def test_a_full_ring_that_is_drained_needs_more_slots() -> None:
    (unread,) = lost(lane={"event_dropped": (0, 3, *14 * (0,))})
    assert "no daemon reads it" in unread.text
    (read,) = lost(lane={"event_dropped": (0, 3, *14 * (0,))}, drained=True)
    assert read.settings == (f"BRICKD_EVENTS={2 * header_value(golden(), 'event_slots')}",)
    assert "brickd up" not in str(read)


def test_a_ring_is_raised_to_what_the_worst_lane_dropped_and_no_further_than_the_agent_goes() -> None:
    slots = header_value(golden(), "event_slots")
    dropped = {"event_dropped": (0, 5, *14 * (0,)), "event_head": 8, "event_records": 2}
    (read,) = [each for each in lost(lane=dropped, drained=True) if each.kind == "events"]
    assert read.settings == (f"BRICKD_EVENTS={slots + 5 * 4}",)


def test_a_ring_of_the_largest_size_that_the_agent_accepts_cannot_be_raised() -> None:
    with segment_of(golden()) as segment:
        reading = replace(segment.read(), drained=True)
    lane = {**reading.lanes[0][1], "event_dropped": (0, 3, *14 * (0,))}
    full = replace(
        reading,
        header={**reading.header, "event_slots": 1 << 20},
        lanes=[(0, lane, reading.lanes[0][2])],  # type: ignore[list-item]
    )
    (loss,) = [each for each in losses(full, ledger_of(full)) if each.kind == "events"]
    assert loss.settings == ()


@pytest.mark.parametrize(("names", "more"), [(5, ()), (NAMES // 2 - 1, ()), (NAMES // 2, (2 * (NAMES // 2 + 100),))])
def test_half_of_the_raised_tables_is_for_the_used_rows_and_the_refused_marks(
    names: int, more: tuple[int, ...]
) -> None:
    """A mark that got no path still gets a name, unless marks already use half of the names."""
    (loss,) = lost(names=names, paths=PATHS - 8, lane={"reserved2": (200, 100, 0)})
    settings = (f"BRICKD_PATHS={2 * (PATHS - 8 + 100)}", *(f"BRICKD_NAMES={each}" for each in more))
    assert (loss.kind, loss.settings, loss.again) == ("marks", settings, "")


def test_kernels_without_a_name_need_sites_once_there_are_names() -> None:
    tables, sites = lost(names=NAMES, names_refused=1, sites=SITES - 1, sites_refused=9)
    assert (tables.settings, tables.again) == ((f"BRICKD_NAMES={2 * NAMES}",), "")
    assert sites.settings == (f"BRICKD_SITES={2 * SITES}",)
    assert sites.text == "9 checksums dropped: the kernel has no name"
    assert "BRICKD_EVENTS" in sites.again
    _, sites = lost(names=NAMES, sites=SITES - 9, sites_refused=9)
    assert (sites.settings, sites.again) == ((), "")


def test_a_size_at_its_limit_is_called_an_estimate() -> None:
    (enough,) = lost(names=NAMES, names_refused=15 * NAMES)
    (limited,) = lost(names=NAMES, names_refused=15 * NAMES + 1)
    assert enough.settings == limited.settings == (f"BRICKD_NAMES={16 * NAMES}",)
    assert (enough.again, limited.again) == ("", "the values are estimates: a name refused twice counts twice")


@pytest.mark.parametrize(("used", "sizes"), [(0, {}), (65_472 // 2, {"names": 65_472})])
def test_only_a_table_that_is_too_small_and_below_its_limit_needs_a_size(used: int, sizes: dict[str, int]) -> None:
    """Marks may use half of a table. The limit of a table is 65,472."""
    with segment_of(golden()) as segment:
        reading = segment.read()
    ledger = ledger_of(reading)
    ledger.marks["refused"] = 70_000
    found = replace(reading, process={**reading.process, "names": used, "paths": 0, "names_refused": 0})
    for room in (65_472, 65_472 - 64):
        header = {**reading.header, "names": room, "paths": 65_472}
        asked = table_needs(replace(found, header=header), ledger).sizes  # type: ignore[arg-type]
        assert asked == (sizes if room < 65_472 else {})


def test_threads_without_a_lane_may_bring_more_places() -> None:
    (lanes,) = lost(no_lane=7, lanes_refused=1, lanes_used=LANES)
    assert lanes.again == "the paths that threads without a lane need are unknown"


@pytest.mark.parametrize(
    ("room", "most", "refused", "value"),
    [(64, 65_472, 0, 128), (64, 65_472, 65, 129), (64, 65_472, 10**9, 1024), (40_000, 65_472, 0, 65_472)],
)
def test_a_setting_is_raised_to_what_was_refused_within_its_limits(
    room: int, most: int, refused: int, value: int
) -> None:
    assert _raised("paths", room, most, refused) == (f"BRICKD_PATHS={value}",)
    assert _raised("paths", most, most, refused) == ()


def test_counters_without_a_lost_record_are_no_loss() -> None:
    assert lost(lane={"unmatched": 5}, names_cut=5) == []


@pytest.mark.parametrize(
    ("counted", "text"),
    [
        ({"no_lane": 1}, "1 span not recorded: "),
        ({"names_refused": 1}, "1 name recorded as 'other': a name was empty, "),
        ({"blocks_refused": 1}, "the kernel refused memory 1 time: "),
        ({"blocks_refused": 1_234}, "the kernel refused memory 1,234 times: "),
        ({"lane": {"rejected": (1, 0)}}, "1 span not recorded: "),
        ({"lane": {"nested": 1}}, "1 call from signal handlers "),
    ],
)
def test_a_loss_of_one_uses_the_singular(counted: dict[str, Any], text: str) -> None:
    (loss,) = lost(**counted)
    assert loss.text.startswith(text)


def test_a_checksum_without_a_site_is_not_counted_as_a_dropped_event() -> None:
    dropped = {"event_dropped": (*6 * (0,), 9, *9 * (0,))}
    kinds = {loss.kind: loss.text for loss in lost(lane=dropped, sites=SITES, sites_refused=7)}
    assert kinds == {
        "sites": f"7 checksums dropped: the worker needs more than {SITES} sites for its kernels and weights",
        "events": "2 events dropped (2 checked): a thread's ring holds 4 slots, and no daemon reads it (brickd up -d)",
    }


@pytest.mark.parametrize("table", ["names", "paths"])
def test_a_full_table_explains_the_starts_that_a_ring_with_room_dropped(table: str) -> None:
    half = header_value(golden(), "event_slots") // 2
    dropped = {"event_dropped": (*3 * (0,), 9, 2, *11 * (0,))}
    full: dict[str, Any] = {table: {"names": NAMES, "paths": PATHS}[table]}
    tables, starts, events = lost(lane=dropped | {"event_head": half}, **full)
    assert starts.text == "9 deferred starts dropped: a table had no room for the name or the path of the brick"
    assert (starts.kind, starts.amount, starts.settings) == ("deferred", 9, tables.settings)
    assert events.text.startswith("2 events dropped (2 finalize): ")
    _, ring = lost(lane=dropped | {"event_head": half + 1}, names=NAMES)
    assert ring.text.startswith("11 events dropped (9 defer, 2 finalize): a thread's ring holds 4 slots,")
    (unexplained,) = lost(lane=dropped | {"event_head": half})
    assert (unexplained.kind, unexplained.amount) == ("events", 11)


def test_dropped_events_are_reported_by_kind_with_the_ring_size_and_a_command() -> None:
    (loss,) = lost(lane={"event_dropped": (1, 0, 0, 1_700, 2, 3, *10 * (0,))})
    room = "a thread's ring holds 4 slots, and no daemon reads it (brickd up -d)"
    assert str(loss) == f"1,706 events dropped (1,700 defer, 2 finalize, 3 measured, 1 other): {room}"


def test_threads_without_lane_memory_do_not_ask_for_more_lanes() -> None:
    lanes, memory = lost(no_lane=9, blocks_refused=1)
    assert (lanes.kind, lanes.settings, memory.kind) == ("lane-memory", (), "memory")
    assert "no memory" in lanes.text
