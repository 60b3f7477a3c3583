"""Deferred work from Python and C: its records, pending work, mistakes of a host."""

from __future__ import annotations

import fcntl
import os
from typing import Any

import pytest
from conftest import SHM, Worker, reading, readings
from faults import ALERT, Compile, Start, exact, native, order, program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import counts, events

from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import find

ROOM, ROOM_OF_STARTS, ROOM_OF_MEASUREMENTS = 4096, 4096 - 512, 4096 - 64


def recorded(worker: Start, prefix: str, source: str, **environment: str) -> tuple[Reading, list[dict[str, Any]]]:
    """Return the reading of a program's segment after its work, and its events."""
    process = worker(source + "\npause()\n", **environment)
    process.paused()
    got = reading(prefix)
    result = got, events(got)
    process.go()
    assert process.end() == 0, process.stderr
    return result


def hashed(text: str) -> int:
    """Return the FNV-1a hash of a text."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def dropped(of: Reading) -> dict[str, int]:
    found: dict[str, int] = ledger_of(of).document()["events"]["dropped"]
    return found


# ---- records --------------------------------------------------------------------------------------------


def test_a_start_is_below_the_open_span_with_its_layer_and_step(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
kernel = brick.brick("kernel", "ffn")
ids = [kernel.defer()]
with brick.step(17, kind="decode"), brick.layer(3), brick.span("mlp"):
    ids += [kernel.defer(stream=7, elements=4096, bytes=9), kernel.defer(stream="side", step=18)]
with brick.layer(4):
    ids.append(kernel.defer(step="request"))
assert ids == [(1 << 48) + n for n in range(1, 5)]
""",
    )
    assert [each["path"] for each in reported] == [
        ("kernel",),
        *[("decode", "mlp[3]", "kernel[3]")] * 2,
        ("kernel[4]",),
    ]
    assert [each["step"] for each in reported][:3] == [0, 17, 18]
    assert [each["stream"] for each in reported][:2] == [0, 7]
    assert (reported[2]["stream"], reported[3]["step"]) == (hashed("side"), hashed("request"))
    assert [(each["elements"], each["bytes"]) for each in reported] == [(0, 0), (4096, 9), (0, 0), (0, 0)]
    assert [each["start"] for each in reported] == sorted(each["start"] for each in reported)
    assert counts(got) == {("decode",): 1, ("decode", "mlp[3]"): 1}, "no total counts deferred work"
    assert exact(got) == {"begun": 2, "summarized": 2}


def test_a_given_start_is_converted_to_ticks(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
import time
kernel, now = brick.brick("kernel"), time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
for start in (now - 10_000_000_000, now):
    assert _core._deferred(kernel, start, 7, 0, 0)
""",
    )
    early, late = (each["start"] for each in reported)
    assert round((late - early) * got.tick_ns / 1e9) == 10


def test_a_finalize_follows_its_measurements_and_covers_only_its_stream(worker: Start, prefix: str) -> None:
    _, reported = recorded(
        worker,
        prefix,
        """
kernel = brick.brick("kernel")
left = [kernel.defer(stream=1) for _ in range(2)]
right = kernel.defer(stream=2)
assert brick.pending() == 3
brick.finalize(stream=1, durations={left[0]: 1000, left[1]: 17.4})
assert brick.pending() == 1
brick.finalize(stream=1)
brick.finalize(stream=3)
assert brick.pending() == 1
brick.finalize()
assert brick.pending() == 0
brick.finalize()
""",
    )
    left, other, right = (each["id"] for each in reported[:3])
    assert [
        {name: n for name, n in each.items() if name not in ("sequence", "slots", "ticks")} for each in reported[3:]
    ] == [
        {"kind": "measured", "id": left, "elapsed_ns": 1000},
        {"kind": "measured", "id": other, "elapsed_ns": 17},
        {"kind": "finalize", "every": 0, "stream": 1},
        {"kind": "finalize", "every": 1, "stream": 0},
    ], "without pending work, a finalize records nothing"
    assert right not in (left, other)
    assert all(reported[2]["start"] < each["ticks"] for each in reported if each["kind"] == "finalize")


def test_an_invalid_stream_means_stream_0_and_not_all_streams(worker: Start, prefix: str) -> None:
    _, reported = recorded(
        worker,
        prefix,
        """
kernel = brick.brick("kernel")
kernel.defer(stream=1); kernel.defer(stream=object()); kernel.defer()
brick.finalize(stream=[])
assert brick.pending() == 1
""",
    )
    assert [each["stream"] for each in reported] == [1, 0, 0, 0]
    assert reported[-1]["every"] == 0


def test_a_finalize_on_another_thread_covers_the_starts_of_this_one(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
import threading
kernel = brick.brick("kernel")
ids = [kernel.defer(stream=5) for _ in range(3)]
waiter = threading.Thread(target=lambda: brick.finalize(stream=5, durations={ids[1]: 5}))
waiter.start(); waiter.join()
assert brick.pending() == 0
""",
    )
    assert [each["kind"] for each in reported] == ["defer"] * 3 + ["measured", "finalize"]
    assert [lane["event_records"] for _, lane, _ in got.lanes] == [3, 2]
    assert reported[-1]["ticks"] > reported[2]["start"]


def test_a_hundred_streams_are_pending_and_the_sum_is_never_too_small(worker: Start, prefix: str) -> None:
    _, reported = recorded(
        worker,
        prefix,
        """
kernel = brick.brick("kernel")
for stream in range(100):
    kernel.defer(stream=stream << 6)
assert brick.pending() == 100
for stream in range(100):
    brick.finalize(stream=stream << 6)
assert brick.pending() == 36, "those that were too many are covered when all are"
brick.finalize()
assert brick.pending() == 0
for stream in range(64):
    kernel.defer(stream=f"stream {stream}")
for stream in range(64):
    brick.finalize(stream=f"stream {stream}")
assert brick.pending() == 0
""",
    )
    assert sum(each["kind"] == "finalize" for each in reported) == 100 + 1 + 64


# ---- rings that fill up ------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_a_full_ring_reserves_space_for_ends_and_counts_drops(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        f"""
kernel = brick.brick("kernel")
ids = [kernel.defer() for _ in range({ROOM_OF_STARTS} + 10)]
assert ids[{ROOM_OF_STARTS}:] == [0] * 10
assert brick.pending() == {ROOM_OF_STARTS}
brick.finalize(durations=dict.fromkeys(ids[:500], 7))
assert brick.pending() == 0
""",
    )
    assert dropped(got) == {"defer": 10, "measured": 500 - (ROOM_OF_MEASUREMENTS - ROOM_OF_STARTS)}
    assert [each["kind"] for each in reported[ROOM_OF_STARTS - 1 :]] == ["defer"] + ["measured"] * 448 + ["finalize"]
    attempts = [lane["event_attempts"] for _, lane, _ in got.lanes]
    assert attempts == [reported[-1]["sequence"]] == [ROOM_OF_STARTS + 10 + 500 + 1], (
        "gaps in the sequence numbers show the dropped events"
    )
    assert exact(got) == {}


@pytest.mark.ci
def test_finalizes_dropped_by_a_full_ring_leave_their_work_pending(worker: Start, prefix: str) -> None:
    got, _ = recorded(
        worker,
        prefix,
        f"""
kernel = brick.brick("kernel")
while kernel.defer(): pass
for _ in range({ROOM - ROOM_OF_STARTS}):
    kernel.defer(); brick.finalize(stream=1)
brick.finalize(stream=0)
assert brick.pending() == 0
""",
    )
    assert "finalize" not in dropped(got), "a finalize of a stream without pending work takes no room"
    got, reported = recorded(
        worker,
        prefix,
        f"""
kernel = brick.brick("kernel")
streams = range({ROOM_OF_STARTS})
for stream in streams: kernel.defer(stream=stream)
for stream in streams: brick.finalize(stream=stream)
assert brick.pending() > 0
brick.finalize()
assert brick.pending() > 0
""",
    )
    assert len(reported) == ROOM
    assert dropped(got) == {"finalize": ROOM_OF_STARTS + 1 - (ROOM - ROOM_OF_STARTS)}


# ---- invalid places and numbers ----------------------------------------------------------------------------------


def test_a_start_without_its_own_path_is_dropped(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
brick.init(paths=64)
for n in range(100):
    with brick.span(f"span {n}"): pass
assert brick.brick("kernel").defer() == 0
with brick.span("span 99"):
    assert brick.brick("kernel").defer() == 0
assert brick.pending() == 0
""",
    )
    assert (reported, dropped(got)) == ([], {"defer": 2})
    assert exact(got) == {"begun": 101, "summarized": 101}


def test_starts_and_finalizes_of_a_thread_without_a_lane_are_counted(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
import threading
brick.init(lanes=1)
kernel = brick.brick("kernel")
assert kernel.defer() != 0
def second():
    assert [kernel.defer() for _ in range(10)] == [0] * 10
    brick.finalize()
thread = threading.Thread(target=second); thread.start(); thread.join()
assert brick.pending() == 1
""",
    )
    assert [each["kind"] for each in reported] == ["defer"]
    assert exact(got) == {"no_lane": 11}


MISTAKES = {
    "brick.finalize(durations={id + 1: 5})": "unmatched",
    "brick.finalize(durations={-1: 5})": "unmatched",
    "brick.finalize(durations={2**64: 5})": "unmatched",
    "brick.finalize(durations={'id': 5})": "unmatched",
    "brick.finalize(durations={None: 5})": "unmatched",
    "brick.finalize(durations={2 << 48 | 1: 5})": "unmatched",
    "brick.finalize(durations=[(id, 5)])": "unmatched",
    "brick.finalize(durations=5)": "unmatched",
    "brick.finalize(durations={id: -1})": "amounts",
    "brick.finalize(durations={id: 2**48 + 1})": "amounts",
    "brick.finalize(durations={id: float('nan')})": "amounts",
    "brick.finalize(durations={id: None})": "amounts",
    "kernel.defer(elements=-1)": "amounts",
    "kernel.defer(bytes='many')": "amounts",
}
MISUSES = (
    "kernel.defer(5)",
    "kernel.defer(streams=5)",
    "kernel.defer(key=5)",
    "brick.finalize(5)",
    "brick.finalize(streams=5)",
    "brick.finalize(duration={})",
    "brick.pending(5)",
)
LISTENING = """
import numpy
class Odd:
    def __index__(self): raise RuntimeError("odd")
    def __float__(self): raise RuntimeError("odd")
    def keys(self): return "ab"
    def items(self): return [1, (2, 3, 4), (5,)]
    def __getitem__(self, key): return key
def outcome(call):
    try: call()
    except Exception as error: return type(error).__name__
kernel = brick.brick("kernel")
id, ids = kernel.defer(), [0]
for line in sys.stdin:
    report(eval(line))
"""


class ScriptedWorker:
    """A worker that evaluates the expressions it receives."""

    def __init__(self, process: Worker) -> None:
        self.process = process

    def ask(self, expression: str) -> Any:
        pipe = self.process.process.stdin
        assert pipe is not None
        pipe.write(expression.encode() + b"\n")
        pipe.flush()
        return self.process.next_report()


@pytest.mark.parametrize("strict", [False, True])
def test_impossible_values_are_counted_and_raised_in_strict_mode(worker: Start, prefix: str, strict: bool) -> None:
    scripted = ScriptedWorker(worker(LISTENING, BRICKD_STRICT=f"{strict:d}"))
    before = {"unmatched": 0, "amounts": 0}
    for call, counter in MISTAKES.items():
        assert (scripted.ask(f"outcome(lambda: {call})") == "ValueError") == strict, call
        ((_, lane, _),) = reading(prefix).lanes
        # The writer checks the id. In strict mode, an amount is checked before the id.
        before[counter] += counter == "unmatched" or not strict
        assert {name: lane[name] for name in ("unmatched", "amounts")} == before, call
    assert scripted.ask("brick.finalize() or brick.pending()") == 0
    assert "measured" not in [each["kind"] for each in events(reading(prefix))]


def test_an_impossible_call_is_a_type_error_and_records_nothing(worker: Start, prefix: str) -> None:
    scripted = ScriptedWorker(worker(LISTENING))
    for call in MISUSES:
        assert scripted.ask(f"outcome(lambda: {call})") == "TypeError", call
    assert [each["kind"] for each in events(reading(prefix))] == ["defer"]


ANYTHING = (
    st.integers(-5, 2**66).map(repr)
    | st.floats().map(lambda x: f"float('{x}')")
    | st.text(max_size=5).map(ascii)
    | st.sampled_from(["None", "object()", "[]", "{}", "b'x'", "Odd()", "True", "'\\ud800'", "numpy.int32(7)"])
)


@pytest.fixture
def scripted(worker: Start) -> ScriptedWorker:
    return ScriptedWorker(worker(LISTENING))


@pytest.mark.ci
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    defers=st.lists(st.dictionaries(st.sampled_from(["stream", "elements", "bytes", "step"]), ANYTHING), max_size=3),
    durations=st.none() | ANYTHING | st.lists(st.tuples(ANYTHING | st.just("ids[-1]"), ANYTHING), max_size=3),
    stream=st.none() | ANYTHING,
)
def test_no_argument_raises_and_every_nonzero_id_is_pending_until_finalized(
    scripted: ScriptedWorker,
    defers: list[dict[str, str]],
    durations: str | list[tuple[str, str]] | None,
    stream: str | None,
) -> None:
    for given_ in defers:
        before = scripted.ask("brick.pending()")
        call = ", ".join(f"{name}={value}" for name, value in given_.items())
        number = scripted.ask(f"ids.append(kernel.defer({call})) or ids[-1]")
        assert scripted.ask("brick.pending()") == before + (number != 0)
    if isinstance(durations, list):
        pairs = [f"({key}, {value})" for key, value in durations if not key.startswith(("[", "{"))]
        durations = f"dict([{', '.join(pairs)}])"
    assert scripted.ask(f"brick.finalize(stream={stream}, durations={durations})") is None
    assert scripted.ask("brick.finalize() or brick.pending()") == 0


# ---- recording is off ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", [{"BRICKD": "0"}, {"BRICKD_CLOCK": "sundial"}])
def test_without_recording_deferring_does_nothing(worker: Start, prefix: str, environment: dict[str, str]) -> None:
    process = worker(
        """
        kernel = brick.brick("kernel")
        assert kernel.defer(stream=1) == 0
        brick.finalize(durations={1 << 48 | 1: 5, "no id": None})
        assert brick.pending() == 0
        """,
        **environment,
    )
    assert process.end() == 0, process.stderr
    assert readings(prefix) == []


def test_a_finalize_opens_no_segment(worker: Start, prefix: str) -> None:
    process = worker("brick.finalize(stream=1, durations={1: 2})\nassert _core._segment_name() == ''")
    assert process.end() == 0, process.stderr


def test_pending_work_can_end_after_recording_was_disabled(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
kernel = brick.brick("kernel")
id = kernel.defer()
brick.disable()
assert kernel.defer() == 0
brick.finalize(durations={id: 5})
assert brick.pending() == 0
brick.finalize(durations={id: 5, 3: 4})
brick.enable()
kernel.defer()
""",
    )
    assert [each["kind"] for each in reported] == ["defer", "measured", "finalize", "defer"]
    assert exact(got) == {}
    assert dropped(got) == {}


# ---- forks, lost segments, the end -------------------------------------------------------------------------------


@pytest.mark.interpreter
def test_a_forked_child_has_no_pending_work_and_no_ids_of_its_parent(worker: Start, prefix: str) -> None:
    process = worker(
        """
        kernel = brick.brick("kernel")
        ids = [kernel.defer() for _ in range(3)]
        if (child := os.fork()) == 0:
            assert brick.pending() == 0
            brick.finalize(durations={ids[0]: 5})
            assert _core._segment_name() == "", "that opens no segment"
            mine = kernel.defer()
            assert mine not in ids and brick.pending() == 1
            brick.finalize(durations={ids[0]: 5, mine: 6})
            os._exit(brick.pending())
        assert os.waitpid(child, 0)[1] == 0
        assert brick.pending() == 3
        brick.finalize()
        pause()
        """
    )
    process.paused()
    parent, child = readings(prefix)
    assert [each["kind"] for each in events(parent)] == ["defer"] * 3 + ["finalize"]
    assert [(each["kind"], each.get("elapsed_ns")) for each in events(child)] == [
        ("defer", None),
        ("measured", 6),
        ("finalize", None),
    ]
    assert exact(child) == {"unmatched": 1}
    process.go()
    assert process.end() == 0, process.stderr


@pytest.mark.ci
@pytest.mark.parametrize("how", ["rm", pytest.param("reopen", marks=pytest.mark.ci)])
def test_after_a_lost_segment_ids_stay_unique_and_pending_work_can_be_finalized(
    compiled: Compile, prefix: str, how: str
) -> None:
    with native(program(compiled, "lost", *ALERT)) as process:
        first = order(process, "bdd")[1:]
        (file,) = find(prefix)
        if how == "rm":
            (SHM / file).unlink()
        else:
            with (SHM / file).open("r+b", buffering=0) as opened:
                os.pwrite(opened.fileno(), (1).to_bytes(8, "little"), 4096 + 16)
        assert order(process, "wp")[1] == 2
        assert order(process, "fp")[1] == 0
        third, pending = order(process, "dp")
        assert (first, third, pending) == ([(1 << 48) + 1, (1 << 48) + 2], (1 << 48) + 3, 1)
        got = reading(prefix)
        assert got.file != file
        assert [(each["sequence"], each["kind"]) for each in events(got)] == [(1, "finalize"), (2, "defer")]
        assert "unmatched" not in exact(got)


@pytest.mark.interpreter
@pytest.mark.parametrize("watched", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_a_segment_left_to_its_consumer_is_marked_as_ended(worker: Start, prefix: str, watched: bool) -> None:
    process = worker(
        """
        b = brick.brick("b")
        id = b.defer()
        pause()
        brick.shutdown()
        brick.finalize(durations={id: 5})
        assert b.defer() == 0
        """
    )
    process.paused()
    (file,) = find(prefix)
    assert reading(prefix).process["ended"] == 0
    with (SHM / file).open("r+b") as opened:
        if watched:
            fcntl.lockf(opened, fcntl.LOCK_EX, 1, 1)
        process.go()
        assert process.end() == 0
        if watched:
            assert (reading(prefix).alive, reading(prefix).process["ended"]) == (False, 1)
            assert [each["kind"] for each in events(reading(prefix))] == ["defer"], (
                "nothing is recorded after the end of recording"
            )
    assert len(readings(prefix)) == watched


def test_a_killed_worker_is_not_marked_as_ended(worker: Start, prefix: str) -> None:
    process = worker('brick.brick("b").defer()\npause()')
    process.paused()
    (file,) = find(prefix)
    with (SHM / file).open("r+b") as opened:
        fcntl.lockf(opened, fcntl.LOCK_EX, 1, 1)
        process.kill()
        assert (reading(prefix).alive, reading(prefix).process["ended"]) == (False, 0)


# ---- threads and signals -----------------------------------------------------------------------------------------


@pytest.mark.ci
def test_threads_that_defer_and_finalize_concurrently_lose_no_count_or_id(worker: Start, prefix: str) -> None:
    got, reported = recorded(
        worker,
        prefix,
        """
import threading
kernel = brick.brick("kernel")
ids = [[] for _ in range(4)]
def work(own):
    for n in range(300):
        with brick.span("launch"): own.append(kernel.defer(stream=n % 5))
        if n % 50 == 0: brick.finalize(stream=n % 5, durations={own[-1]: n})
threads = [threading.Thread(target=work, args=(own,)) for own in ids]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len({id for own in ids for id in own}) == 1200
brick.finalize()
assert brick.pending() == 0
""",
    )
    kinds = [each["kind"] for each in reported]
    assert (kinds.count("defer"), kinds.count("measured")) == (1200, 24)
    assert len({each["id"] for each in reported if each["kind"] == "defer"}) == 1200
    assert exact(got) == {"begun": 1200, "summarized": 1200}
