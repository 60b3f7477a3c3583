"""Calls to the writer that the extension seldom makes: calls at limits, calls while recording is off, and calls for
which there is no room.
"""

from __future__ import annotations

from typing import Any

import pytest
from c_calls import c_calls
from conftest import reading
from epochs import draw, splitmix64, step_hash, word
from faults import Compile, Start
from recorded import checked, events, summaries

from brickd.shm import records
from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import Reading


@pytest.fixture
def called(worker: Start, compiled: Compile, prefix: str) -> Any:
    """Run a C program; return its report and the segment at its end."""

    def run(program: str, **environment: str) -> tuple[Any, Reading]:
        process = worker(f"{c_calls(compiled)}\nresult = None\n{program}\nreport(result)\npause()\n", **environment)
        reported = process.next_report()
        process.paused()
        got = reading(prefix)
        run.records_of = process  # type: ignore[attr-defined]
        return reported, got

    return run


def details(of: Reading) -> list[dict[str, Any]]:
    """Return the records in the span rings."""
    with open_segment(of.file) as segment:
        (lane,) = of.lanes
        found, others = records.spans(segment.ring(lane[0], events=False)[1])
        assert not others
        return found


def test_a_name_can_be_interned_while_recording_is_off_but_not_before_init(called: Any) -> None:
    reported, got = called("""
w.brick_enable(0)
unnamed = name("early"), w.brick_state()
w.brick_enable(1)
on = name("on"), name("on", "norm")
w.brick_enable(0)
result = [unnamed, on, name("on"), name("off"), name(""), w.brick_state()]
w.brick_enable(1)
result += [name("off")]
""")
    unnamed, on, again, off, empty, state, after = reported
    assert unnamed == [2**32 - 1, 3]
    assert (on[0], again) == (on[1], on[0])
    assert (state, empty, after) == (3, 0, off)
    assert [each and each[0] for each in got.names] == ["other", "on", "norm", "off"]
    assert got.category(on[0]) == "norm"
    assert got.process["names_refused"] == 1


U64 = 2**64 - 1
LOCAL, REPLICATED, PARTIAL, MOVED, NONE = 0, 1, 2, 3, 4


RELATIONS = [
    (LOCAL, 0, (LOCAL, 0)), (LOCAL, 5, (LOCAL, 0)), (LOCAL, 65_536, (LOCAL, 0)), (REPLICATED, 1, (REPLICATED, 1)),
    (PARTIAL, 65_535, (PARTIAL, 65_535)), (MOVED, 7, (MOVED, 7)), (REPLICATED, 0, None), (MOVED, 65_536, None),
    (PARTIAL, 2**32 - 1, None), (NONE, 7, None), (2**32 - 1, 7, None),
]  # fmt: skip


def test_an_invalid_relation_is_counted_and_claims_nothing(called: Any) -> None:
    _, got = called(f"""
kernel = name("kernel")
for relation, of in {[each[:2] for each in RELATIONS]}:
    checksum(kernel, At(relation=relation, of=of))
""")
    wanted = [recorded or (LOCAL, 0) for *_, recorded in RELATIONS]
    assert [(each["relation"], each["of"]) for each in events(got)] == wanted
    assert got.lanes[0][1]["amounts"] == sum(recorded is None for *_, recorded in RELATIONS)


def test_a_backend_must_be_the_number_of_a_name(called: Any) -> None:
    _, got = called("""
kernel = name("kernel")
for backend in (0, 1, 65535, 65536, 2**32 - 1):
    checksum(kernel, At(backend=backend))
""")
    assert [each["backend"] for each in events(got)] == [0, 1, 65_535, 0, 0]
    assert got.lanes[0][1]["amounts"] == 0


def test_a_layer_above_the_maximum_is_counted_once_and_left_out(called: Any) -> None:
    _, got = called("""
kernel = name("kernel")
for layer in (0, 0xFFFFFE, 0xFFFFFF):
    checksum(kernel, At(layer=pointer(c_uint32(layer))))
""")
    assert [layer for (_, layer, _), _ in checked(got)] == [0, 0xFFFFFE, -1]
    assert got.lanes[0][1]["amounts"] == 1


def test_a_given_state_is_recorded_and_a_default_one_is_not(called: Any) -> None:
    _, got = called("""
kernel = name("kernel")
for state in range(4):
    checksum(kernel, At(state=state))
""")
    flags = [each["flags"] for each in events(got)]
    assert flags[0] == 0
    assert flags[2] == flags[3] != flags[1]
    assert 0 not in flags[1:]


def test_inputs_beyond_eight_share_one_checksum(called: Any) -> None:
    _, got = called("""
kernel = name("kernel")
output, why = take(kernel)
other, why = take(kernel, size=5)
for inputs in (
    *([output] * count for count in (7, 8, 9, 10)), [output] * 9 + [other], [output] * 8 + [other, output],
    [output] * 9 + [Taken()], [output] * 7 + [other],
): checksum(kernel, None, inputs, output)
""")
    found = events(got)
    inputs = [each["tensors"][1:] for each in found]
    assert [len(each) for each in inputs] == [7, 8, 8, 8, 8, 8, 8, 8]
    more = [each["flags"] != found[0]["flags"] for each in found]
    assert more == [False, False, True, True, True, True, True, False]
    whole = inputs[1][-1]
    assert all(each == whole for row in inputs[:6] for each in row[:7])
    last = [row[-1] for row in inputs]
    assert len({each["checksum"] for each in last[1:6]}) == 5, "the order of the inputs matters"
    assert [each["elements"] for each in last] == [4, 4, 8, 12, 13, 13, 0, 5]
    assert last[6]["dtype"] == 0, "one input could not be recorded"
    assert last[2]["checksum"] == splitmix64(splitmix64(whole["checksum"]) ^ whole["checksum"])


def test_a_given_time_has_the_step_and_path_of_the_open_span(called: Any) -> None:
    _, got = called("""
w.brick_init(None)
control(2)
outer, given = name("outer"), name("given")
w.brick_record(given, None, 5, 1, 2)
w.brick_begin(outer, None, byref(c_uint64(17)))
w.brick_record(given, None, 6, 3, 4)
w.brick_layer_begin(3, None)
w.brick_record(given, None, 7, 0, 0)
w.brick_layer_end(3, None)
w.brick_end(outer, None, 0, 0)
""")
    found = details(got)
    assert [(each["step"], each["duration"], each["elements"], each["bytes"]) for each in found[:3]] == [
        (0, 5, 1, 2), (17, 6, 3, 4), (17, 7, 0, 0),
    ]  # fmt: skip
    assert found[3]["child"] == 0
    assert {path: row["count"] for path, row in summaries(got).items()} == {
        ("given",): 1, ("outer",): 1, ("outer", "given"): 1, ("outer", "given[3]"): 1,
    }  # fmt: skip


@pytest.mark.parametrize(("elapsed", "rejected"), [(2**48, (0, 0)), (2**48 + 1, (1, 0)), (2**64 - 1, (1, 0))])
def test_a_given_time_above_the_maximum_is_rejected_by_the_clock(
    called: Any, elapsed: int, rejected: tuple[int, int]
) -> None:
    reported, got = called(f'given = name("given"); result = w.brick_record(given, None, {elapsed}, 0, 0)')
    lane = got.lanes[0][1]
    assert (lane["begun"], lane["summarized"], lane["rejected"]) == (1, 1 - sum(rejected), rejected)
    assert reported & 8 == (8 if sum(rejected) else 0)


@pytest.mark.ci
def test_given_times_are_rejected_above_the_sum_that_a_reader_accepts(called: Any) -> None:
    reported, got = called("""
given = name("given")
for _ in range(2**14 + 3): result = w.brick_record(given, None, 2**48, 0, 0)
""")
    lane = got.lanes[0][1]
    assert (lane["begun"], lane["summarized"], lane["rejected"]) == (2**14 + 3, 2**14, (3, 0))
    assert reported & 8 == 8
    assert summaries(got)[("given",)]["total_ns"] == 2.0**62


ROOM = 256 * 64  # the total number of frames, layer scopes and stacks that a thread has room for


@pytest.mark.ci
def test_without_a_free_frame_spans_and_layers_are_refused_with_their_ends(called: Any) -> None:
    reported, got = called("""
brick = name("brick")
opened = 0
while not w.brick_begin(brick, 1, None) & REFUSED: opened += 1
refused = [w.brick_layer_begin(5, 1), w.brick_begin(brick, 1, None)]
mine = [w.brick_end(brick, 1, 0, 0), w.brick_layer_end(5, 1), w.brick_end(brick, 1, 0, 0)]
result = [opened, refused, mine]
""")
    opened, refused, mine = reported
    assert opened == ROOM - 1, "the stack of the key takes one place"
    assert (refused, mine) == ([8, 8], [0, 0, 0])
    lane = got.lanes[0][1]
    assert (lane["begun"], lane["open"], lane["rejected"]) == (opened + 2, opened, (0, 2))
    assert (lane["unmatched"], lane["summarized"]) == (0, 0)


@pytest.mark.ci
def test_a_key_without_an_open_frame_ends_nothing(called: Any) -> None:
    reported, got = called("""
brick = name("brick")
while not w.brick_begin(brick, 1, None) & REFUSED: pass
result = [w.brick_layer_begin(5, 2), w.brick_layer_end(5, 2)]
result += [w.brick_begin(brick, 2, None), w.brick_end(brick, 2, 0, 0)]
w.brick_end(brick, 1, 0, 0)  # that of the refused one
w.brick_end(brick, 1, 0, 0)  # one place is free: the stack of the next key takes it
result += [w.brick_layer_begin(5, 2), w.brick_layer_end(5, 2)]
result += [w.brick_begin(brick, 2, None), w.brick_end(brick, 2, 0, 0)]
w.brick_end(brick, 1, 0, 0)
result += [w.brick_layer_begin(5, 2), w.brick_layer_end(5, 2)]
""")
    assert reported == [8, 16, 8, 16, 8, 16, 8, 16, 1, 2]
    lane = got.lanes[0][1]
    assert (lane["rejected"], lane["unmatched"], lane["abandoned"]) == ((0, 3), 4, 0)
    assert lane["open"] == ROOM - 3


def test_the_end_of_a_layer_ends_only_spans_inside_it(called: Any) -> None:
    reported, got = called("""
a, b = name("a"), name("b")
w.brick_begin(a, None, None)
w.brick_layer_begin(3, None)
w.brick_begin(b, None, None)
w.brick_layer_begin(4, None)
result = [w.brick_layer_end(layer, None) for layer in (5, 3, 3, 4)]
result += [w.brick_end(a, None, 0, 0)]
w.brick_layer_begin(0xFFFFFE, None)
w.brick_begin(b, None, None); w.brick_end(b, None, 0, 0)
result += [w.brick_layer_end(0xFFFFFE, None)]
w.brick_layer_begin(0xFFFFFF, None)
w.brick_begin(b, None, None); w.brick_end(b, None, 0, 0)
result += [w.brick_layer_end(0xFFFFFF, None)]
""")
    assert reported == [16, 0, 16, 16, 2, 2, 2]
    lane = got.lanes[0][1]
    assert (lane["abandoned"], lane["unmatched"], lane["amounts"]) == (1, 3, 1)
    assert {path: row["count"] for path, row in summaries(got).items()} == {("a",): 1, ("b[16777214]",): 1, ("b",): 1}


def test_an_empty_key_file_name_counts_as_unset(called: Any) -> None:
    reported, got = called(
        """
kernel = name("kernel")
checksum(kernel)
result = os.path.exists(os.environ["BRICKD_STATE_DIR"] + "/key")
""",
        BRICKD_KEY_FILE="",
    )
    assert reported
    assert got.process["key"] != 0


def test_without_a_directory_for_a_key_checksums_are_unkeyed_with_one_message(called: Any) -> None:
    _, got = called(
        """
kernel = name("kernel")
for n in range(3):
    checksum(kernel)
""",
        BRICKD_STATE_DIR="", XDG_STATE_HOME="", HOME="",
    )  # fmt: skip
    found = events(got)
    assert [each["tensors"][0]["elements"] for each in found] == [4, 4, 4]
    assert got.process["key"] == 0
    process = called.records_of
    process.go()
    process.end()
    assert process.stderr.count("has no directory") == 1


STEPS = [0, 1, 7, 2**32, 2**63 + 5, U64]


def test_a_step_with_a_cache_has_another_number_and_the_same_sampling(called: Any) -> None:
    filled = [0, 1, 2, U64]
    reported, _ = called(
        f"w.brick_init(None); result = [[w.brick_step_after(s, f) for f in {filled}] for s in {STEPS}]"
    )
    for step, after in zip(STEPS, reported, strict=True):
        assert after[0] == step
        assert len({*after}) == len(filled)
        assert {step_hash(each) for each in after} == {step_hash(step)}


@pytest.mark.parametrize("rate", [1, draw(7), draw(7) + 1, 2**31, 2**32 - 2])
def test_steps_with_a_draw_below_the_rate_are_sampled(called: Any, rate: int) -> None:
    reported, got = called(f"""
kernel = name("kernel")
os.pwrite(w.brick_segment_fd(), *{word()})
def wanted(step):
    at = At(step=pointer(c_uint64(step)))
    return w.brick_wants_of(kernel, None, byref(at), c_uint32({rate})), w.brick_wants(kernel, None, byref(at))
w.brick_begin(kernel, None, None)
open_ = w.brick_in_step(None), w.brick_wants_of(kernel, None, None, c_uint32({rate})), w.brick_wants(kernel, None, None)
w.brick_begin(kernel, None, byref(c_uint64(0)))
w.brick_layer_begin(3, None)
result = [[wanted(step) for step in {STEPS}], open_, w.brick_in_step(None)]
""")
    drawn, without_a_step, within = reported
    assert drawn == [[int(draw(step) < rate), 1] for step in STEPS]
    assert without_a_step == [0, 0, 1], "a rate below `all` records nothing outside of steps"
    assert within == 1, "step 0 counts as a step, and a layer inside step 0 belongs to it"
    assert got.process["rate"] == rate


@pytest.mark.ci
def test_a_checksum_inside_refused_frames_needs_its_own_layer_and_step(called: Any) -> None:
    _, got = called(
        """
brick = name("brick")
while not w.brick_begin(brick, None, None) & REFUSED: pass
layer, step = pointer(c_uint32(3)), pointer(c_uint64(9))
for at in (At(), At(layer=layer), At(step=step), At(layer=layer, step=step)): checksum(brick, at, taken=whole)
""".replace("while not", "whole = take(brick)[0]\nwhile not")
    )
    (event,) = events(got)
    assert (event["step"], [site[1] for site, _ in checked(got)]) == (9, [3])
    assert got.process["sites_refused"] == 3
    assert sum(got.lanes[0][1]["event_dropped"]) == 3


def test_an_unreadable_tensor_is_refused_and_an_untaken_one_dropped(called: Any) -> None:
    reported, got = called("""
kernel = name("kernel")
unread = Taken()
why = w.brick_take(kernel, None, None, None, byref(unread)).decode()
result = [why, unread.refused, unread.dtype]
result += [checksum(kernel, taken=unread), checksum(kernel, taken=Taken()), checksum(kernel), checksum(UNNAMED)]
""")
    assert reported == ["no tensor was given", 1, 0, 8, 8, 0, 8]
    lane = got.lanes[0][1]
    assert (got.process["tensors_refused"], got.process["sites_refused"]) == (1, 1)
    assert (lane["event_attempts"], sum(lane["event_dropped"])) == (3, 2)
    assert [each["position"] for each in events(got)] == [2], "each checksum of the site counts"


def test_streams_above_the_limit_are_pending_until_all_are_finalized(called: Any) -> None:
    reported, got = called("""
brick = name("brick")
w.brick_defer.argtypes = (c_uint32, c_void_p, c_uint64, c_void_p, c_uint64, c_uint64, c_void_p)
for stream in range(70): w.brick_defer(brick, None, stream, None, 0, 0, None)
for stream in range(3): w.brick_defer(brick, None, stream, None, 0, 0, None)
result = [w.brick_pending()]
for stream in range(70): w.brick_finalize(byref(c_uint64(stream)))
result += [w.brick_pending()]
w.brick_finalize(byref(c_uint64(5)))
w.brick_finalize(None)
result += [w.brick_pending()]
w.brick_finalize(None)
w.brick_finalize(byref(c_uint64(5)))
""")
    assert reported == [73, 6, 0]
    finalized = [each for each in events(got) if each["kind"] == "finalize"]
    assert [each["stream"] for each in finalized] == [*range(70), 5, 0]
    assert [each["every"] for each in finalized] == [0] * 71 + [1]


def test_a_sweep_removes_one_dead_key_per_call_and_no_borrowed_one(called: Any) -> None:
    reported, got = called("""
brick = name("brick")
DEAD = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p)
w.brick_thread_sweep.restype = c_void_p
w.brick_borrow.argtypes = (c_void_p,)
for key in range(1, 9):
    for _ in range(key): w.brick_begin(brick, key, None)
w.brick_borrow(8)
w.brick_borrow(99)  # has nothing open
asked = []
def swept(dead):
    check = DEAD(lambda key: asked.append(key) or key in dead)
    return sorted(each for each in (w.brick_thread_sweep(check) for _ in range(600)) if each)
result = [swept(()), sorted(set(asked)), swept((2, 3, 8, 9)), swept((2, 3, 8, 9))]
result += [w.brick_end(brick, 8, 0, 0) for _ in range(8)] + [w.brick_end(brick, 2, 0, 0), w.brick_end(brick, 1, 0, 0)]
""")
    assert reported[:4] == [[], [1, 2, 3, 4, 5, 6, 7], [2, 3], []]
    assert reported[4:] == [*[0] * 8, 16, 2]
    lane = got.lanes[0][1]
    assert (lane["abandoned"], lane["open"], lane["unmatched"]) == (2 + 3, 4 + 5 + 6 + 7, 1)


def test_releasing_a_thread_drops_each_key_once_and_keeps_borrowed_ones(called: Any) -> None:
    reported, got = called("""
brick = name("brick")
DROP = ctypes.CFUNCTYPE(None, c_void_p)
w.brick_borrow.argtypes = (c_void_p,)
for key in (1, 2, 3): w.brick_begin(brick, key, None); w.brick_layer_begin(5, key)
w.brick_borrow(3)
dropped = []
drop = DROP(dropped.append)
w.brick_thread_release(drop)
result = [sorted(dropped), w.brick_layer_end(5, 3), w.brick_end(brick, 3, 0, 0)]
w.brick_thread_release(drop)
result += [len(dropped), w.brick_begin(brick, 4, None)]
""")
    assert reported == [[1, 2], 0, 0, 2, 4 + 1], (
        "the thread had no open spans, so its lane became free and is used again"
    )
    lane = got.lanes[0][1]
    assert (lane["abandoned"], lane["summarized"], lane["open"], lane["opened"]) == (2, 1, 1, 2)


@pytest.mark.parametrize("what", ["span", "layer"])
def test_a_lane_stays_with_its_thread_while_a_borrowed_key_has_open_frames(called: Any, what: str) -> None:
    reported, got = called(f"""
brick = name("brick")
drop = ctypes.CFUNCTYPE(None, c_void_p)(lambda key: None)
w.brick_borrow.argtypes = (c_void_p,)
def begin(): return w.brick_begin(brick, 3, None) if {what == "span"} else w.brick_layer_begin(5, 3)
begin()
w.brick_borrow(3)
w.brick_thread_release(drop)
result = [w.brick_end(brick, 3, 0, 0) if {what == "span"} else w.brick_layer_end(5, 3)]
w.brick_begin(brick, 4, None)
w.brick_thread_exit()
""")
    assert reported == [0]
    lane = got.lanes[0][1]
    assert (lane["opened"], lane["thread"], lane["open"], lane["abandoned"]) == (1, 0, 0, 1)
