"""Extensions that record through the capsule share one segment and one call tree, with exact reference counts."""

from __future__ import annotations

import sysconfig

import pytest
from conftest import ROOT, reading, readings
from faults import Compile, Start, exact
from recorded import counts, events, record, summaries
from test_marks import marks

from brickd.shm import _reader, records
from brickd.shm.segment import open_segment

EXTENSION = ("-shared", "-fPIC", "-Wno-unused-parameter", "-I", sysconfig.get_path("include"))


@pytest.fixture
def calls(compiled: Compile) -> str:
    """The lines with which a program imports tests/native/calls.c."""
    built = compiled("calls.so", (ROOT / "tests" / "native" / "calls.c",), *EXTENSION)
    return f"""
import importlib.util
spec = importlib.util.spec_from_file_location("calls", {str(built)!r})
calls = importlib.util.module_from_spec(spec)
spec.loader.exec_module(calls)
"""


# ---- one segment, one tree ---------------------------------------------------------------------------------------


@pytest.mark.ci
def test_native_spans_and_python_spans_nest_in_one_segment(worker: Start, prefix: str, calls: str) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
outer, inner = brick.brick("outer"), brick.brick("inner")
for _ in range(100):
    with outer, brick.layer(2):
        calls.begin("native", calls.task())
        with inner: calls.record("kernel", calls.task(), 7)
        calls.end("native", calls.task(), 3)
    calls.begin("apart", 0)
    with inner: pass
    calls.end("apart", 0)
""",
    )
    assert counts(got) == {
        ("outer",): 100,
        ("outer", "native[2]"): 100,
        ("outer", "native[2]", "inner[2]"): 100,
        ("outer", "native[2]", "inner[2]", "kernel[2]"): 100,
        ("apart",): 100,
        ("inner",): 100,
    }
    assert exact(got) == {"begun": 600, "summarized": 600}
    row = summaries(got)["outer", "native[2]"]
    assert (row["elements"], row["bytes"]) == (300, 500)
    assert {got.category(path.name) for path in got.paths if path and got.name(path.name) == "native"} == {"native"}


def test_native_launches_transfers_and_dependencies_are_below_python_spans(
    worker: Start, prefix: str, calls: str
) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
calls.launched("first", 0, 1)
with brick.layer(2), brick.span("outer"):
    calls.launched("gemm", calls.task(), 16)
    calls.moved(calls.task(), 4096)
    calls.needs(None, "qkv", calls.task())
    calls.needs("down", "up", calls.task())
brick.disable()
calls.launched("off", calls.task(), 1)
""",
    )
    outer = ("outer@2:ticks",)
    assert marks(got) == {
        ("first:launched",): 2,
        ("first:launched", "<<<1,32,1>>> smem=0B:shaped"): 1,
        (*outer, "gemm@2:launched"): 2,
        (*outer, "gemm@2:launched", "<<<16,32,1>>> smem=0B:shaped"): 1,
        (*outer, "tokens→gpu0@2:h2d"): 1,
        (*outer, "qkv:needs"): 1,
        (*outer, "down@2:ticks", "up:needs"): 1,
    }
    assert exact(got) == {"begun": 3, "summarized": 3}


def test_a_native_step_counts_its_valid_rows_and_python_sees_a_native_layer(
    worker: Start, prefix: str, calls: str
) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
inner = brick.brick("inner")
for step in range(1, 11):
    calls.begin("decode", calls.task(), step)
    calls.layer_begin("", calls.task(), 4)
    with inner: pass
    calls.layer_end("", calls.task(), 4)
    calls.step_end("decode", calls.task(), 8)
""",
    )
    assert counts(got) == {("decode",): 10, ("decode", "inner[4]"): 10}
    assert summaries(got)[("decode",)]["elements"] == 70


def test_native_deferred_work_is_below_python_spans_and_pending(worker: Start, prefix: str, calls: str) -> None:
    process = worker(
        calls
        + """
with brick.span("outer"), brick.layer(2):
    ids = [calls.defer("kernel", calls.task(), 7), calls.defer("apart", 0, 8), brick.brick("python").defer(stream=7)]
assert calls.pending() == brick.pending() == 3
calls.measured(ids[0], 17)
calls.finalize(7)
assert calls.pending() == 1
calls.finalize()
assert calls.pending() == 0
brick.disable()
assert calls.defer("kernel", calls.task(), 7) == 0
pause()
"""
    )
    process.paused()
    logged = events(reading(prefix))
    assert [(each["path"], each["elements"], each["bytes"]) for each in logged[:3]] == [
        (("outer", "kernel[2]"), 3, 5),
        (("apart",), 3, 5),
        (("outer", "python[2]"), 0, 0),
    ]
    assert [each["kind"] for each in logged[3:]] == ["measured", "finalize", "finalize"]
    assert [each.get("every") for each in logged[3:]] == [None, 0, 1]
    process.go()
    assert process.end() == 0, process.stderr


def test_native_checksums_match_python(worker: Start, prefix: str, calls: str) -> None:
    process = worker(
        calls
        + """
from array import array
x, y = array("f", [1, 2, 3]), array("f", [2, 4, 6, 8])
with brick.step(7), brick.layer(2):
    assert calls.checksum("native", calls.task(), FLOAT32, y, x, "tp") is None
    brick.checksum("python", y, input=x, relation="replicated:tp", backend="tp")
assert calls.checksum("apart", 0, FLOAT32, y, x, None, 9) is None
assert calls.wants("apart", 0) and not calls.wants("token_embedding", 0)
assert calls.checksum("token_embedding", 0, FLOAT32, y, x) is None
report(calls.checksum("apart", 0, 99, y, x))
pause()
""".replace("FLOAT32", str(records.DTYPES.index("float32")))
    )
    assert process.next_report() == "its dtype is not one of brick_dtype"
    process.paused()
    got = reading(prefix)
    native, python, apart = events(got)
    with open_segment(got.file) as segment:
        sites = segment.read().sites
    named = [(got.name(of[0]), of[1]) for each in (native, python, apart) if (of := sites[each["site"]]) is not None]
    assert named == [("native", 2), ("python", 2), ("apart", -1)]
    reported = ("step", "position", "relation", "of", "backend", "inputs", "valid", "output", "tensors")
    assert [native[key] for key in reported] == [python[key] for key in reported]
    assert (apart["step"], apart["tensors"], apart["params"]) == (9, python["tensors"], 5)
    assert (got.name(native["of"]), got.process["tensors_refused"]) == ("tp", 2)
    process.go()
    assert process.end() == 0, process.stderr


@pytest.mark.parametrize(
    "first", ["begin('b', 0)", "record('b', 0, 7)", "layer_begin('', 0, 1)", "defer('b', 0, 1)", "wants('b', 0)"]
)
def test_any_first_native_call_opens_the_segment_as_python_would(
    worker: Start, prefix: str, calls: str, first: str
) -> None:
    program = "sys.argv = ['/srv/engine.py']\n" + calls + f"calls.{first}\nassert _core._segment_name()\n"
    assert record(worker, prefix, program).service == "engine"


@pytest.mark.ci
def test_nothing_is_recorded_while_recording_is_off(worker: Start, prefix: str, calls: str) -> None:
    everything = """
def everything(key):
    calls.begin("b", key)
    calls.layer_begin("", key, 1)
    calls.record("b", key, 7)
    calls.layer_end("", key, 1)
    calls.end("b", key)
    calls.checksum("b", key, 12, b"1234", b"5678", "group")
everything(calls.task())
calls.threads(2, 10)
assert calls.is_off()
"""
    process = worker(calls + everything, BRICKD="0")
    assert process.end() == 0, process.stderr
    assert readings(prefix) == []
    got = record(worker, prefix, calls + "brick.init(); brick.disable()" + everything + "brick.enable(); everything(0)")
    assert exact(got) == {"begun": 2, "summarized": 2}


def test_each_call_of_the_capsule_exists_and_a_text_has_a_key(worker: Start) -> None:
    process = worker("""
import ctypes
from brick_agent import _core
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = ctypes.cast(get(_core.native, b"brick_agent._core.native"), ctypes.POINTER(ctypes.c_uint64))
named = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t)(table[table[0] // 8 - 1])
report([all(table[: table[0] // 8]), named(b"req-1", 5)])
""")
    assert process.next_report() == [True, _reader.source_hash(b"req-1")]


@pytest.mark.ci
@pytest.mark.interpreter
@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("sys.modules['brick_agent'] = None", '"brick_agent"'),
        (
            "sys.modules['brick_agent'] = type(sys)('brick_agent')",
            "its functions for extensions take 0 bytes, expected at least 192",
        ),
        (
            "_core.native = older",
            "its functions for extensions take 8 bytes, expected at least 192: install a later brick-agent",
        ),
    ],
    ids=["absent", "of another kind", "older"],
)
def test_a_missing_or_outdated_agent_is_an_import_error(
    worker: Start, prefix: str, calls: str, missing: str, text: str
) -> None:
    process = worker(
        f"""
import ctypes
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
size = ctypes.c_size_t(8)
older = ctypes.pythonapi.PyCapsule_New(ctypes.byref(size), b"brick_agent._core.native", None)
{missing}
try:
    exec({calls!r})
except ImportError as error:
    report(str(error))
"""
    )
    assert text in process.next_report()
    assert process.end() == 0


# ---- other code that runs between the calls
# -----------------------------------------------------------------------------


def test_tasks_of_asyncio_keep_their_own_native_spans(worker: Start, prefix: str, calls: str) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
import asyncio
async def work(n):
    name = f"task {n % 3}"
    with brick.span(name):
        task = calls.task()
        calls.begin("native " + name, task)
        await asyncio.sleep(0)
        assert calls.task() == task
        with brick.span("inner " + name): await asyncio.sleep(0)
        calls.end("native " + name, task)
async def main(): await asyncio.gather(*(work(n) for n in range(30)))
asyncio.run(main())
""",
    )
    assert counts(got) == {
        path: 10
        for n in range(3)
        for path in (
            (f"task {n}",),
            (f"task {n}", f"native task {n}"),
            (f"task {n}", f"native task {n}", f"inner task {n}"),
        )
    }
    assert exact(got) == {"begun": 90, "summarized": 90}


@pytest.mark.ci
def test_greenlets_keep_their_own_native_spans(worker: Start, prefix: str, calls: str) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
from greenlet import getcurrent, greenlet
def work(name):
    with brick.span(name):
        calls.begin("native " + name, calls.task())
        main.switch()
        with brick.span("inner " + name): main.switch()
        calls.end("native " + name, calls.task())
main = getcurrent()
greenlets = {name: greenlet(work) for name in "abc"}
for name, each in greenlets.items(): each.switch(name)
for _ in range(2):
    for each in greenlets.values(): each.switch()
""",
    )
    assert counts(got) == {
        path: 1 for n in "abc" for path in ((n,), (n, f"native {n}"), (n, f"native {n}", f"inner {n}"))
    }


@pytest.mark.ci
def test_native_spans_of_threads_that_alternate_on_the_interpreter_lock_are_exact(
    worker: Start, prefix: str, calls: str
) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
import threading
brick.init()  # before the threads: what is begun while one of them opens it is counted and not recorded
sys.setswitchinterval(1e-6)
outer, inner = brick.brick("outer"), brick.brick("inner")
def work():
    for _ in range(500):
        with outer:
            calls.begin("native", calls.task())
            with inner: pass
            calls.end("native", calls.task())
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
calls.threads(4, 500)
for thread in threads: thread.join()
""",
    )
    paths = (("outer",), ("outer", "native"), ("outer", "native", "inner"))
    assert counts(got) == {**dict.fromkeys(paths, 4000), ("thread",): 2000}
    assert exact(got) == {"begun": 14000, "summarized": 14000}


def test_a_native_thread_keeps_its_span_open_while_it_calls_python(worker: Start, prefix: str, calls: str) -> None:
    got = record(
        worker,
        prefix,
        calls
        + """
brick.init()
inner = brick.brick("inner")
def back():
    with inner: calls.record("kernel", calls.task(), 7)
assert calls.threads(4, 25, back) == 4
""",
    )
    assert counts(got) == {("thread",): 100, ("inner",): 100, ("inner", "kernel"): 100}
    assert exact(got) == {"begun": 300, "summarized": 300}
    assert all(lane["thread"] == 0 for _, lane, _ in got.lanes), "the threads have ended, so their lanes are free"


# ---- references --------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_open_native_spans_neither_take_nor_give_references(worker: Start, prefix: str, calls: str) -> None:
    process = worker(
        calls
        + """
import contextvars, random, threading
bricks = [brick.brick(f"python {n}") for n in range(3)]
def anything(rng):
    for _ in range(rng.randrange(30)):
        n, key = rng.randrange(3), calls.task()
        rng.choice((
            bricks[n].start, bricks[n].stop, brick.layer(n).__enter__,
            lambda: calls.begin(f"native {n}", key), lambda: calls.end(f"native {n}", key),
            lambda: calls.layer_begin("", key, 5 + n), lambda: calls.layer_end("", key, 5 + n),
        ))()
def work(seed, contexts):
    rng = random.Random(seed)
    for _ in range(100): rng.choice(contexts).run(anything, rng)
many = [[contextvars.Context() for _ in range(20)] for _ in range(30)]
before = [sys.getrefcount(context) for contexts in many for context in contexts]
for seed, contexts in enumerate(many):
    thread = threading.Thread(target=work, args=(seed, contexts))
    thread.start(); thread.join()
report([sys.getrefcount(context) for contexts in many for context in contexts] == before)
pause()
"""
    )
    assert process.next_report() is True
    process.paused()
    (got,) = readings(prefix)
    assert exact(got).keys() >= {"summarized", "abandoned", "unmatched"}
    process.go()
    assert process.end() == 0


def test_spans_left_open_by_python_below_a_native_thread_end_with_each_call(
    worker: Start, prefix: str, calls: str
) -> None:
    process = worker(
        calls
        + """
inner, calls_made = brick.brick("inner"), []
def back():
    inner.start()
    calls_made.append(1)
    if len(calls_made) == 10: pause()
calls.threads(1, 10, back)
"""
    )
    process.paused()
    (got,) = readings(prefix)
    assert exact(got) == {"begun": 20, "summarized": 9, "abandoned": 9, "open": 2}
    process.go()
    assert process.end() == 0


# ---- forks -------------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.interpreter
def test_a_forked_child_records_natively_into_its_own_segment(worker: Start, prefix: str, calls: str) -> None:
    process = worker(
        calls
        + """
task = calls.task()
with brick.span("outer"):
    calls.begin("parents", task)
    child = os.fork()
    if child == 0:
        calls.end("parents", task)
        calls.begin("childs", task)
        with brick.span("inner"): pass
        calls.end("childs", task)
        calls.threads(2, 10)
        pause()
        os._exit(0)
    os.waitpid(child, 0)
    calls.end("parents", task)
pause()
"""
    )
    process.paused()
    mine, childs = readings(prefix)
    assert exact(mine) == {"begun": 2, "open": 2}
    assert counts(childs) == {("childs",): 1, ("childs", "inner"): 1, ("thread",): 20}
    assert exact(childs) == {"begun": 22, "summarized": 22}, "spans that were open at the fork belong to the parent"
    process.go()
    process.paused()
    assert {path: n for each in readings(prefix) if each.alive for path, n in counts(each).items()} == {
        ("outer", "parents"): 1,
        ("outer",): 1,
    }
    process.go()
    assert process.end() == 0


@pytest.mark.ci
def test_a_multiprocessing_child_with_only_native_spans_leaves_nothing(worker: Start, prefix: str, calls: str) -> None:
    process = worker(
        calls
        + """
import multiprocessing
def work():
    calls.threads(2, 10)
    assert _core._segment_name()
children = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
for child in children: child.start()
for child in children: child.join()
report([child.exitcode for child in children])
pause()
"""
    )
    assert process.next_report() == [0, 0]
    process.paused()
    assert readings(prefix) == []
    process.go()
    assert process.end() == 0
