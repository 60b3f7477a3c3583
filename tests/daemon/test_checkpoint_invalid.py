"""A checkpoint with a correct checksum and invalid content is refused, or does no harm.

Each test takes a real document with an entry of every kind, and replaces one value. Then the test uses the checkpoint
in every way in which a daemon and the verbs do.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import struct
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pytest
from conftest import SHM, readings
from conftest import workers as starting
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from running import running
from sandbox import apart
from source_pieces import all_pieces, end, fnv1a
from test_coverage import evidence
from test_deferred import defer, finalize, measured
from test_recording_hostile import ANYTHING, places
from verbs import brickd, document

from brickd.analysis.numerics.online_state import (
    Case,
    Compared,
    DivergentSite,
    Doubt,
    Latest,
    RowDoubt,
    ServiceSite,
    SiteCounts,
)
from brickd.analysis.numerics.recent_counts import FingerprintCounts, RecentSlot
from brickd.analysis.problem import Problem
from brickd.analysis.problem_book import Entry
from brickd.base.paths import runtime
from brickd.base.state_file import framed
from brickd.base.units import SECOND
from brickd.daemon.daemon import Daemon
from brickd.datasources.shared_memory import SharedMemory
from brickd.errors import BrickdError, CheckpointRefused, DaemonRefused
from brickd.model.deferred import Deferred
from brickd.model.deferred_overlay import laid_over, overlay
from brickd.model.retained_workers import Cursor, RetainedTotals, RetainedWorker
from brickd.model.worker_survey import survey
from brickd.model.workers import Worker
from brickd.query.orders import Forgetting, Wish
from brickd.query.queries import (
    BricksQuery,
    CoverageQuery,
    DiffQuery,
    InspectQuery,
    SourceQuery,
    StatusQuery,
    TreeQuery,
    WeightsQuery,
    WorkersQuery,
)
from brickd.shm import _reader
from brickd.shm.clock import Now
from brickd.shm.ledger import ledger_of
from brickd.shm.removed_workers import RemovedWorker
from brickd.shm.removed_workers import WorkerCounts as Counted
from brickd.shm.segment_copy import Reading
from brickd.shm.sites import Tier
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory
from brickd.state.runtime_dir import Home
from brickd.views import bricks, coverage, diff, inspect, source, status, tree, weights, workers
from brickd.views.common import Answer
from brickd.views.past_status import of_past

PROGRAM = """
with brick.layer(3), brick.span("norm", category="norm"), brick.span("within", elements=5): pass
brick.brick("given").record(17)
brick.checksum("mlp", b"1234", layer=2)
brick.brick("device").defer(stream=1)
brick.finalize(stream=1)
pause()
"""
SMALL = {"LANES": "2", "NAMES": "64", "PATHS": "64", "EVENTS": "64", "SITES": "64"}
ODD, SOUND, THIRD, GONE = "0d" * 16, "1e" * 16, "2f" * 16, "3a" * 16
PLACE = ServiceSite("api", "mlp", 2)
LOOKED_NS = 1_700_000_000 * SECOND


@dataclass
class Dead:
    """A killed worker: the bytes of its removed segment, and its reading."""

    file: str
    image: bytes = field(repr=False)
    reading: Reading = field(repr=False)


@pytest.fixture(scope="module")
def dead() -> Iterator[Dead]:
    with apart() as prefix, starting() as start:
        room = {f"BRICKD_{name}": value for name, value in SMALL.items()}
        process = start(PROGRAM, BRICKD_SERVICE="api", BRICKD_WORKER="1", **room)
        process.paused()
        (found,) = readings(prefix)
        process.kill()
        yield Dead(found.file.removeprefix(prefix), (SHM / found.file).read_bytes(), replace(found, pid=None))


def made(dead: Dead) -> Memory:
    """Return a daemon's memory with an entry of every kind."""
    work = Deferred()
    for records in (
        defer(100, 3, id=1, path=4) + defer(110, 3, id=4, path=4) + measured(4, 5) + finalize(300, 3),
        defer(400, 3, id=2, path=4) + defer(500, 4, id=7, path=4) + defer(510, 4, id=8, path=4),
        measured(9, 8) + measured(8, 3) + finalize(150, 3) + finalize(160),
    ):
        work.take(records, lambda: Now(1.0, 2**62))
        work.settle(1.0, complete=True)
    reading = laid_over(dead.reading, overlay(work))
    memory = Memory(
        os.environ["BRICKD_SHM_PREFIX"],
        {dead.reading.uuid: RetainedWorker("api/1", [Cursor(0, 0, 0, 0, 0)], work, 7, (1, 2))},
        {SOUND: RetainedTotals("api/0", reading), THIRD: RetainedTotals("api/2", dead.reading)},
        {"api/TSC": RetainedTotals("api/older", reading, 3)},
        ["cd" * 16],
        {"api": Wish(True, False, "1/16", ("*.mlp", "norm")), "ipa": Wish(off=True)},
        newest_event=9,
    )
    named = {SOUND: "api/0", ODD: "api/1"}
    case = Case(1_700_000_000_000_000_000, evidence(SOUND, 1), evidence(ODD, 2))
    memory.compared = Compared(
        1,
        sites={PLACE: SiteCounts("ffn", 9, 1, 5, 1, 0, 0, 1), ServiceSite("api", "norm", -1): SiteCounts("norm", 2)},
        findings={PLACE: DivergentSite(PLACE, "ffn", 2, named, {ODD: 2}, frozenset([ODD]), case, case)},
        doubts={ServiceSite("api", "attn", 1): Doubt(frozenset([ODD, SOUND]), frozenset([ODD]), case)},
        apart={PLACE: ((frozenset([ODD]), frozenset([SOUND, THIRD])),)},
        latest={"api": Latest(5, 1)},
        unlooked=1,
        unkept={"api": 1},
        row_doubts={ServiceSite("api", "mlp", 2, Tier.HISTORY): RowDoubt("unsteady", 5)},
        recent={("api", tier): (RecentSlot(7, FingerprintCounts(5, 1, 1, 2, 1)),) for tier in Tier},
    )
    one = RemovedWorker(GONE, "", "api", 3, "3", 1, 1, 2, False, 1, Counted(5, 1, 1, 1, 1))
    memory.removed.fold([one])
    memory.removed.add("ipa", True, 2, Counted(7))
    text, known = b"text" * 99, fnv1a(b"text" * 99)
    memory.sources.take(ODD, all_pieces(text)[2:-1])
    memory.sources.take(SOUND, [*all_pieces(b"another", hash_=known)[:1], end(known, 0, 0, 7)])
    memory.sources.take(ODD, all_pieces(b"whole"))
    memory.sources.take(SOUND, all_pieces(b"other", hash_=fnv1a(b"whole")))
    worker, problem = Worker("api/1", dead.reading, ledger_of(dead.reading)), Problem("off", "api", ("api/1",), "", "")
    for at_ns, shown in ((LOOKED_NS, [Entry(problem, 1, 2)]), (LOOKED_NS + SECOND, [])):
        memory.history = memory.history.updated([worker], shown, at_ns, continues=True)
    return memory


def decoded(content: bytes) -> Any:
    return json.loads(content.partition(b"\n")[2])


def written(value: Any) -> bytes:
    """Return a checkpoint of this document; it may have NaN and Infinity, because Python's JSON has them."""
    return framed("checkpoint", checkpoint.VERSION, [json.dumps(value).encode()])


def answers(world: SharedMemory | Daemon) -> Iterator[Callable[[], Answer]]:
    """Yield the answer of every view that depends on a checkpoint."""
    yield lambda: status.answer(world, StatusQuery())
    yield lambda: Answer(*of_past(world, LOOKED_NS, (), ()))
    yield lambda: workers.answer(world, WorkersQuery())
    yield lambda: bricks.answer(world, BricksQuery(by="layer"))
    yield lambda: tree.answer(world, TreeQuery(layers=True))
    yield lambda: coverage.answer(world, CoverageQuery())
    yield lambda: diff.answer(world, DiffQuery())
    yield lambda: weights.answer(world, WeightsQuery(all=True))
    yield lambda: inspect.answer(world, InspectQuery("api/0"))
    yield lambda: source.answer(world, SourceQuery())


def shown(world: SharedMemory | Daemon) -> None:
    for answer in answers(world):
        with contextlib.suppress(BrickdError):
            json.dumps(answer().document, allow_nan=False)


def used(content: bytes, dead: Dead) -> set[str]:
    """Use a checkpoint in every way in which a daemon and the verbs do; return the kinds of the daemon's events.

    Raises:
        CheckpointRefused: the checkpoint cannot be decoded. No other exception is allowed.
    """
    once = checkpoint.decode(content)
    again = checkpoint.decode(checkpoint.encode(once))
    assert replace(again, known={}) == replace(once, known={})
    runtime().checkpoint.write_bytes(content)
    shown(SharedMemory())
    (SHM / f"{os.environ['BRICKD_SHM_PREFIX']}{dead.file}").write_bytes(dead.image)
    now_ns = time.monotonic_ns()
    with contextlib.suppress(DaemonRefused), Home(runtime()) as home:  # a daemon refuses a checkpoint of another prefix
        daemon = Daemon(home)
        for _ in range(8):  # enough ticks for a worker to count as dead: its segment has not changed for five seconds
            now_ns += SECOND
            daemon._collector.tick(now_ns, look=True)
            shown(daemon)
        daemon.orders.forget(Forgetting())
        daemon._collector.end(now_ns)
        assert not daemon._collector.trouble
        return {event.kind for event in daemon.events.since(0).events}
    return set()


@pytest.mark.ci
def test_a_checkpoint_with_every_kind_of_entry_can_be_decoded_and_used(dead: Dead, prefix: str) -> None:
    assert used(written(decoded(checkpoint.encode(made(dead)))), dead) == {"worker_died"}


def base64(content: bytes) -> str:
    return b64encode(content).decode()


def squeezed(content: bytes) -> str:
    return base64(zlib.compress(content))


def at_site(slots: str, site: int) -> str:
    """Return the slots of a checksum, after replacing the index of its site."""
    record = bytearray(b64decode(slots))
    record[8:12] = struct.pack("<I", site)
    return base64(bytes(record))


# Paths to values of each kind, and invalid values for each. `*` in a path stands for the first key.
KNOWN, READING, FINDING = ("known", "*"), ("gone", "*", 1), ("compared", "findings", 0)
DEFERRED, STREAM, BATCH = (*KNOWN, 4), (*KNOWN, 4, "streams", 0), (*KNOWN, 4, "batches", 0)
MAKING, CASE = ("sources", "making", "*"), (*FINDING, 6)
SPELL = ("history", "workers", 1, 0)
NO_COUNT: tuple[Any, ...] = (None, True, -1, 2**64, 10**400, 1.5, float("nan"), float("inf"), "7", [])
NO_TEXT: tuple[Any, ...] = (None, 7, [], "\ud800")
NO_FLAG: tuple[Any, ...] = (None, 0, 1, "true")
NO_LIST: tuple[Any, ...] = (None, 7, {"a": 1})
WRONG: dict[tuple[Any, ...], tuple[Any, ...]] = {
    ("prefix",): (None, 7, []),
    ("newest_event",): (*NO_COUNT, 2**62 + 1),
    ("closed",): NO_FLAG,
    ("buried",): (*NO_LIST, [7], ["\ud800"], 5_000 * ["x"]),
    ("wishes", "api"): (*NO_LIST, [], [True], [True, False, "1/16"], [True, False, "1/16", [], 7]),
    ("wishes", "api", 0): NO_FLAG,
    ("wishes", "api", 1): NO_FLAG,
    ("wishes", "api", 2): (*NO_TEXT, "2/3", "1/0"),
    ("wishes", "api", 3): (7, [7], 65 * ["x"]),
    ("history",): NO_LIST,
    ("history", "periods"): (*NO_LIST, [[1]], 65 * [[1, 1]]),
    ("history", "periods", 0, 0): NO_COUNT,
    ("history", "workers", 0): NO_COUNT,
    ("history", "workers", 1): (*NO_LIST, [[1]], lambda spells: 2_049 * spells),
    (*SPELL, 0): NO_COUNT,
    (*SPELL, 2, 0): NO_TEXT,
    (*SPELL, 2, 1): NO_TEXT,
    (*SPELL, 2, 2): NO_TEXT,
    (*SPELL, 2, 3): (*NO_TEXT, "asleep"),
    (*SPELL, 2, 4): (*NO_COUNT, 0),
    (*SPELL, 2, 5): NO_COUNT[1:],
    (*SPELL, 2, 6): NO_COUNT,
    ("history", "problems", 1, 0, 1): NO_COUNT[1:],
    ("history", "problems", 1, 0, 2): (*NO_LIST, []),
    ("history", "problems", 1, 0, 2, 0): (*NO_TEXT, "asleep"),
    ("known",): NO_LIST,
    KNOWN: (*NO_LIST, []),
    (*KNOWN, 0): NO_TEXT,
    (*KNOWN, 1): (*NO_LIST, [[0, 0, 0, 0]], [[0, 0, 0, 0, 0, 0]], 1025 * [[0, 0, 0, 0, 0]]),
    (*KNOWN, 1, 0, 0): NO_COUNT,
    (*KNOWN, 1, 0, 4): NO_COUNT,
    (*KNOWN, 2): NO_COUNT,
    (*KNOWN, 3): (None, -2, 2**32, 0.0),
    (*KNOWN, 5): (7, [1], [1, -1], ["x", 1], [1.5, 1], [1, 2, 3], [2**64, 1]),
    ("removed",): (None, [], [[]], [[], [], []]),
    ("removed", 0, 0): (None, [], ["x"]),
    ("removed", 0, 0, 0): NO_TEXT,
    ("removed", 0, 0, 1): NO_TEXT,
    ("removed", 0, 0, 2): NO_TEXT,
    ("removed", 0, 0, 3): (None, True, 1.5, 2**31, -(2**31) - 1),
    ("removed", 0, 0, 4): NO_TEXT,
    ("removed", 0, 0, 5): NO_COUNT,
    ("removed", 0, 0, 6): NO_COUNT,
    ("removed", 0, 0, 7): NO_COUNT,
    ("removed", 0, 0, 8): NO_FLAG,
    ("removed", 1, 0, 9): (*NO_COUNT, 0),
    ("removed", 0, 0, 10): (None, [1], [1, 1, 1, 1], 6 * [1], [1, 1, 1, 1, -1]),
    ("removed", 0, 0, 10, 0): NO_COUNT,
    (*DEFERRED, "counts", "started"): NO_COUNT,
    (*DEFERRED, "closed"): (*NO_COUNT[:2], -2, *NO_COUNT[3:]),
    (*DEFERRED, "measured"): (None, 7, "x", "AAAA", "A" * 400_000, base64(b"\0\xff" * 73_710)),
    (*DEFERRED, "streams"): (
        None,
        7,
        [[3, -1, "", ""], [3, -1, "", ""]],
        lambda streams: [*streams, [77, *streams[0][1:]]],
    ),
    (*STREAM, 0): NO_COUNT,
    (*STREAM, 1): (*NO_COUNT[:2], -2, *NO_COUNT[3:]),
    (*STREAM, 2): (None, 7, "x", "AAAA", base64(struct.pack("<QQIQQ", 1, 9, _reader.NUMBERS_MAX, 0, 0))),
    (*STREAM, 3): (None, 7, "x", "AAA="),
    (*DEFERRED, "batches"): (None, [], [[[], []]], 3 * [[[], []]]),
    BATCH: ([], [[], [], []]),
    (*BATCH, 0): (None, [[1, None]], [[-1, None, False]], [[1, -1, False]], [[1, None, 0]]),
    (*BATCH, 1): (None, [[1]], [[-1, 1]], [[1, -1]], [[1, float("nan")]]),
    ("gone", "*"): (*NO_LIST, [], ["x"]),
    ("gone", "*", 0): NO_TEXT,
    ("gone", "*", 2): (*NO_COUNT, 0),
    ("older", "*", 2): (*NO_COUNT, 0),
    (*READING, "file"): (None, 7, []),
    (*READING, "pid"): NO_COUNT[1:],
    (*READING, "odd"): NO_COUNT,
    (*READING, "tick_ns"): (None, True, "1.0", 0, -1.0, 1e6, float("nan"), float("inf"), 10**400),
    (*READING, "now_ticks"): NO_COUNT[1:2] + NO_COUNT[3:],
    (*READING, "deferred", "started"): NO_COUNT,
    (*READING, "header", "clock"): (None, 0, 9, "TSC"),
    (*READING, "header", "service"): (None, 7, "zz", 65 * "00"),
    (*READING, "header", "pid"): NO_COUNT,
    (*READING, "process", "names"): NO_COUNT,
    (*READING, "lanes"): (None, 7, [[0, {}, {}]], lambda lanes: 2 * lanes),
    (*READING, "lanes", 0, 0): NO_COUNT,
    (*READING, "lanes", 0, 1): (
        None,
        [],
        lambda lane: {**lane, "rejected": lane["rejected"][:-1], "event_dropped": [*lane["event_dropped"], 0]},
    ),
    (*READING, "lanes", 0, 1, "begun"): NO_COUNT,
    (*READING, "lanes", 0, 1, "rejected"): (None, 7, [], [0], [0, float("nan")], [0, -1]),
    (*READING, "names"): (None, -1, "x", []),
    (*READING, "summaries"): (
        None,
        7,
        "",
        "x",
        "AAAA",
        base64(_reader.Packed(bytes(20 * _reader.SUMMARY_BYTES)).form()),
    ),
    (*READING, "latency"): ("", "AAAA", base64(_reader.Packed(bytes(64 * _reader.SUMMARY_BYTES)).form())),
    ("names", "*", 0, 0): (None, 7, []),
    ("names", "*", 0, 1): NO_COUNT,
    ("names", "*", 0): ([], ["x"], ["x", 0, 0]),
    ("paths", "*", 1, 0): (None, -2, 1, "x"),
    ("paths", "*", 1, 1): NO_COUNT,
    ("paths", "*", 1, 2): (None, -2, 2**31),
    ("paths", "*", 1, 3): (None, -1, 128, _reader.UNIT_BOUND),
    ("sites", "*", 0, 0): (*NO_COUNT, "mlp"),
    ("sites", "*", 0, 2): NO_COUNT,
    ("compared", "since_ns"): NO_COUNT,
    ("compared", "unlooked"): NO_COUNT,
    ("compared", "unkept", "api"): NO_COUNT,
    ("compared", "latest", "api"): ([], [1], [1, 1, 1], [1, float("nan")], [-1, 1]),
    ("compared", "sites", 0, 0): NO_TEXT,
    ("compared", "sites", 0, 1): NO_TEXT,
    ("compared", "sites", 0, 2): (*NO_COUNT[:2], -2, *NO_COUNT[3:]),
    ("compared", "sites", 0, 3): NO_TEXT,
    ("compared", "sites", 0, 4): NO_COUNT,
    ("compared", "sites", 0): (["api"], ["api", "mlp", 2], ["api", "mlp", 2, "ffn", 1, 2, 3, 4, 5, 6, 7, 8]),
    ("compared", "names", 0): ([], ["x"], [7, "x"], ["x", 7], ["x", "\ud800"]),
    ("compared", "uuids", 0): NO_TEXT,
    ("compared", "apart", 0, 3, 0): ([], [[0]], [[0], [9]], [[0], ["x"]]),
    ("compared", "doubts", 0, 3): (None, 7, [7], ["\ud800"]),
    ("compared", "doubts", 0, 4): (None, 7, [7]),
    ("compared", "doubts", 0, 5): (7, [1]),
    ("compared", "row_doubts", 0, 1): (None, 7, ["mlp", "else"], ["mlp", "history", "history"]),
    ("compared", "row_doubts", 0, 3): NO_TEXT,
    ("compared", "row_doubts", 0, 4): NO_COUNT,
    ("compared", "recent_histories", "api"): (None, [[]], [[7, 5]], [[7, 5, 1, 1, 2, 1]] * 13),
    ("compared", "recent_histories", "api", 0, 5): NO_COUNT,
    FINDING: ([], None),
    (*FINDING, 2): NO_COUNT,
    (*FINDING, 3): (None, [9], [0]),
    (*FINDING, 4): (None, [[0]], [[9, 1]], [[0, float("nan")]], [[0, -1]]),
    (*FINDING, 5): (None, [9], ["x"]),
    CASE: ([], [1]),
    (*CASE, 0): NO_COUNT,
    (*CASE, 1): ([], ["x", "", ""]),
    (*CASE, 1, 0): NO_TEXT,
    (*CASE, 1, 1): (None, 7, "x", "AAAA", "!AAA", lambda slots: 2 * slots, lambda slots: at_site(slots, 2**32 - 1)),
    (*CASE, 1, 2): NO_TEXT,
    ("sources", "counts"): (None, {"differing": -1}, {"differing": float("nan")}),
    ("sources", "differing"): (None, [["zz", "x"]], [["00", 7]], [["-1", "x"]], 5_000 * [["00", "x"]]),
    ("sources", "whole", "*"): (None, 7, "", "AAAA"),
    ("sources", "making"): (None, {"zz": []}, lambda making: dict.fromkeys(map(str, range(257)), *making.values())),
    (*MAKING, 0): NO_TEXT,
    (*MAKING, 1): NO_FLAG,
    (*MAKING, 2): ([], [["", ""]]),
    (*MAKING, 2, 0): (["eJw=", "eJw="],),  # the compressed data is truncated
    (*MAKING, 2, 2, 0): (None, "", "AAAA", squeezed(bytes(41))),
    (*MAKING, 2, 2, 1): (
        None,
        "",
        "AAAA",
        lambda here: squeezed(bytes(1)),
        lambda here: squeezed(len(zlib.decompress(b64decode(here))) * b"\2"),
    ),
    (*MAKING, 3, "*"): ([], [0, 0], [0, 0, -1], [0, 0, 2**64], [0, 0, float("nan")]),
    (*MAKING, 4): ({"x": [[1], "eJwDAAAAAAE="]}, {"x": [[-1], ""]}),
}


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    """Replace the value at a path."""

    def below(where: Any, key: Any) -> Any:
        return where[next(iter(where)) if key == "*" else key]

    where, key = reduce(below, path[:-1], document), path[-1]
    key = next(iter(where)) if key == "*" else key
    assert where[key] is not None or path[-1] == "pid"
    where[key] = value(where[key]) if callable(value) else value


@pytest.fixture(scope="module")
def content(dead: Dead) -> bytes:
    """A checkpoint with every kind of entry.

    Several tests share it, so it does not have the prefix of a single test.
    """
    return checkpoint.encode(made(dead))


@pytest.mark.parametrize("path", WRONG, ids=lambda path: "-".join(map(str, path)))
def test_an_invalid_value_is_refused(content: bytes, path: tuple[Any, ...]) -> None:
    for value in WRONG[path]:
        document = decoded(content)
        put(document, path, value)
        with pytest.raises(CheckpointRefused, match="has an invalid structure"):
            pytest.fail(f"decoded with {value!r}: {checkpoint.decode(written(document))!r:.0}")


@pytest.mark.parametrize("key", ["prefix", "known", "gone", "older", "buried", "wishes", "newest_event", "closed",
                                 "names", "paths"])  # fmt: skip
def test_a_missing_entry_is_refused(content: bytes, key: str) -> None:
    document = decoded(content)
    del document[key]
    with pytest.raises(CheckpointRefused, match=f"KeyError: '{key}'"):
        checkpoint.decode(written(document))


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"known":' * 100_000, b"9" * 5_000, b"\x00", b'"\xff"', b"NaN"])
def test_an_invalid_document_is_refused(body: bytes) -> None:
    with pytest.raises(CheckpointRefused, match=r"invalid structure|nested too deeply"):
        checkpoint.decode(framed("checkpoint", checkpoint.VERSION, [body]))


@pytest.mark.ci
def test_an_unknown_path_kind_of_a_later_agent_is_harmless(dead: Dead, prefix: str) -> None:
    document = decoded(checkpoint.encode(made(dead)))
    put(document, ("paths", "*", 1, 3), 127)
    assert used(written(document), dead) == {"worker_died"}


def test_findings_of_older_checkpoints_name_only_workers_that_were_compared(dead: Dead) -> None:
    document = decoded(checkpoint.encode(made(dead)))
    finding, workers = document["compared"]["findings"][0], dict(document["compared"].pop("names"))
    finding[3:6] = workers, {ODD: 2}, [ODD]
    assert checkpoint.decode(written(document)).compared.findings == made(dead).compared.findings
    for outliers, contradict in (({THIRD: 1}, []), ({ODD: 1}, [THIRD]), ({ODD: 1}, [7])):
        finding[4:6] = outliers, contradict
        with pytest.raises(CheckpointRefused, match="has an invalid structure"):
            checkpoint.decode(written(document))


@pytest.mark.ci
def test_a_worker_with_more_saved_cursors_than_lanes_is_drained(dead: Dead, prefix: str) -> None:
    document = decoded(checkpoint.encode(made(dead)))
    put(document, (*KNOWN, 1), 3 * [[0, 0, 0, 0, 0]])
    assert used(written(document), dead) == {"worker_died"}


@pytest.mark.ci
@given(st.data())
def test_random_changes_of_a_checkpoint_are_refused_or_harmless(dead: Dead, data: st.DataObject) -> None:
    with apart():
        document = decoded(checkpoint.encode(made(dead)))
        for _ in range(data.draw(st.integers(1, 3))):
            where, key = data.draw(st.sampled_from(list(places(document))))
            where[key] = data.draw(ANYTHING | st.just(where[key]).map(copy.deepcopy))
            if isinstance(where, list) and data.draw(st.booleans()):
                where.insert(key, copy.deepcopy(where[key]))
        with contextlib.suppress(CheckpointRefused):
            assert not used(written(document), dead) & {"defect", "quarantined"}


NASTY: tuple[Any, ...] = (None, -1, 2**64, 1.5, float("nan"), "x", [], {"a": 1})


@pytest.mark.nightly
def test_every_bad_value_in_every_place_is_refused_or_harmless(
    dead: Dead, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The workers need not be watched: they have no lock, so none of them is live.
    monkeypatch.setattr("brickd.model.worker_survey._WATCH_SECONDS", 0.0)
    original = decoded(checkpoint.encode(made(dead)))
    refused = 0
    for number, _ in enumerate(places(original)):
        for value in NASTY:
            document = copy.deepcopy(original)
            where, key = list(places(document))[number]
            where[key] = value
            try:
                assert not used(written(document), dead) & {"defect", "quarantined"}
            except CheckpointRefused:
                refused += 1
            for left in SHM.glob(f"{prefix}*"):
                left.unlink()
    assert refused > 3_000


# ---- round trips


WORDS = (0, 1, 12, 127, 2**31, 2**32 - 1, 2**52, 2**63, 2**64 - 1)


@pytest.mark.ci
@given(st.integers(0, 2**32))
def test_a_checkpoint_of_a_corrupt_segment_can_be_decoded(dead: Dead, seed: int) -> None:
    chance, image = random.Random(seed), bytearray(dead.image)
    reported = [at for at in range(0, len(image), 8) if any(image[at : at + 8])]
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.choice(reported) + 8 * chance.randrange(-3, 4)
        if chance.randrange(2) and at >= 0:
            image[at : at + 8] = struct.pack("<Q", chance.choice(WORDS))
        else:
            image[max(at, 0) + chance.randrange(8)] = chance.randrange(256)
    with apart() as prefix:
        for number in range(2):
            (SHM / f"{prefix}{number}{dead.file}").write_bytes(image)
        with machine(prefix) as here:
            here.tick()
            here.tick()
            here.tick()
            memory = checkpoint.decode(checkpoint.encode(here.loop.memory))
            for gone in memory.gone.values():
                memory.add_up(gone)
                memory.add_up(gone)
            checkpoint.decode(checkpoint.encode(memory))


def test_a_segment_with_a_unit_that_only_daemons_write_is_refused(dead: Dead, prefix: str) -> None:
    (number,) = [n for n, path in enumerate(dead.reading.paths) if path and path.unit == _reader.UNIT_DEFERRED]
    path = dead.reading.paths[number]
    assert path is not None
    key = struct.pack("<HHI", 0xFFFF, path.name, 1 << 31 | path.unit << 24)
    at = dead.image.index(key)
    image = bytearray(dead.image)
    image[at + 7] = 1 << 7 | _reader.UNIT_BOUND
    (SHM / f"{prefix}{dead.file}").write_bytes(image)
    (refused,) = survey(prefix).refused
    assert refused.reason == f"path {number} has unit {_reader.UNIT_BOUND}, which workers never write"


# ---- with and without a daemon


SPOILED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "NaN": (("compared", "since_ns"), float("nan")),
    "Infinity": ((*READING, "tick_ns"), float("inf")),
    "the name of a site": (("sites", "*", 0, 0), "mlp"),
}


@pytest.mark.ci
@pytest.mark.parametrize(
    "what", ["NaN", *(pytest.param(what, marks=pytest.mark.ci) for what in SPOILED if what != "NaN")]
)
def test_an_invalid_checkpoint_is_reported_by_the_daemon_and_by_status(dead: Dead, what: str) -> None:
    document_ = decoded(checkpoint.encode(made(dead)))
    put(document_, *SPOILED[what])
    path, content = runtime().checkpoint, written(document_)
    path.write_bytes(content)
    ended = brickd("status")
    assert ended.returncode == 0
    assert ended.stdout.startswith("no workers: ")
    assert f"{path}: has an invalid structure: ValueError: " in ended.stderr
    assert "(brickd doctor)" in ended.stderr
    found = {each["name"]: each for each in document("doctor", code=1)["findings"]}["checkpoint"]
    assert (found["state"], found["fix"]) == ("broken", f"mv {path} {path}.refused")
    pruned = brickd("prune")
    assert (pruned.returncode, pruned.stderr) == (0, ended.stderr)
    with running() as daemon:
        event = daemon.until("break")
        assert f"{path}: has an invalid structure" in event["text"]
        assert "moved aside as checkpoint.refused" in event["text"]
        (problem,) = daemon.ask("/status")["problems"]
        assert "started without its saved state" in problem["text"]
        daemon.end()
    assert path.with_name("checkpoint.refused").read_bytes() == content
    assert brickd("status").stderr == ""
