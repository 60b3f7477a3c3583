"""Pools of threads, processes and greenlets: each has its own spans, counts are exact, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import readings
from recorded import Start, counts, record, spans, summaries

pytestmark = pytest.mark.interpreter


def test_a_thread_pool_records_the_work_of_its_threads(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        inner = brick.brick("inner")
        @brick.trace("work")
        def work(_):
            with inner: return sum(range(50))
        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(work, range(1000)))) == 1000
        async def main():
            with brick.span("request"):
                await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(100)))
        asyncio.run(main())
        """,
    )
    # If a task hands work to another thread, the spans of this work begin at the root of that thread.
    assert counts(got) == {("work",): 1100, ("work", "inner"): 1100, ("request",): 1}
    assert spans(got) == {"begun": 2201, "summarized": 2201}


PROCESSES = """
import json, os, sys
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
import brick_agent as brick

def work(job):
    handle, number = job
    with handle(elements=number):
        return os.getpid()

if __name__ == "__main__":
    method, how = sys.argv[1:]
    handle = brick.brick("work", category="ffn")
    jobs = [(handle, n) for n in range(200)]
    with brick.span("parent"): pass
    context = multiprocessing.get_context(method)
    if how == "executor":
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            pids = set(pool.map(work, jobs, chunksize=10))
            print(json.dumps(sorted(pids)), flush=True)
            os.read(0, 1)
    else:
        pool = context.Pool(2)
        pids = set(pool.map(work, jobs, chunksize=10))
        print(json.dumps(sorted(pids)), flush=True)
        os.read(0, 1)
        pool.close()
        pool.join()
    print('"ended"', flush=True)
    os.read(0, 1)
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("method", "how"),
    [("fork", "executor"), ("spawn", "executor"), ("forkserver", "executor"), ("fork", "pool")],
)
def test_a_process_pool_counts_each_job_once(worker: Start, prefix: str, tmp_path: Path, method: str, how: str) -> None:
    program = tmp_path / "program.py"  # a file, because a spawned child imports the program again
    program.write_text(PROCESSES)
    process = worker(
        f"import runpy; sys.argv = ['program', {method!r}, {how!r}]; "
        f"runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    pids = process.next_report()
    rows = [(got.header["pid"], counts(got), summaries(got)) for got in readings(prefix)]
    assert {pid for pid, _, _ in rows} == {process.pid, *pids}
    assert [seen for pid, seen, _ in rows if pid == process.pid] == [{("parent",): 1}]
    work = [row[("work",)] for pid, _, row in rows if pid != process.pid]
    assert (sum(row["count"] for row in work), sum(row["elements"] for row in work)) == (200, sum(range(200)))
    process.go()
    assert process.next_report() == "ended"
    assert [got.header["pid"] for got in readings(prefix)] == [process.pid], "all other processes ended cleanly"


def test_threads_that_init_concurrently_open_one_segment(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import threading
        barrier = threading.Barrier(16)
        b = brick.brick("b")
        def run(n):
            barrier.wait()
            brick.init(service=f"service {n}", worker=n)
            with b: pass
        threads = [threading.Thread(target=run, args=(n,)) for n in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        # Spans that began while the segment was being opened were only counted; from now on, all are recorded.
        with b: pass
        pause()
        """
    )
    process.paused()
    (got,) = readings(prefix)
    assert got.service == f"service {got.header['index']}", (
        "one process records all given times, and the others record none"
    )
    assert spans(got)["begun"] + spans(got).get("no_lane", 0) == 17
    assert spans(got)["begun"] == spans(got)["summarized"]


@pytest.mark.ci
def test_greenlets_of_gevent_keep_their_own_spans(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import warnings; warnings.simplefilter("ignore")
        from gevent import monkey; monkey.patch_all()
        import gevent, gevent.pool, threading, time
        outer, inner = brick.brick("outer"), brick.brick("inner")
        def work(n):
            with outer:
                gevent.sleep(0.001 * (n % 3))
                with inner: time.sleep(0)
        pool = gevent.pool.Pool(20)
        pool.map(work, range(200))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        def real():  # a thread of the system, whatever was patched
            with inner: pass
        gevent.get_hub().threadpool.apply(real)
        """,
    )
    assert counts(got) == {("outer",): 220, ("outer", "inner"): 220, ("inner",): 1}
    assert spans(got) == {"begun": 441, "summarized": 441}


@pytest.mark.ci
def test_a_greenlet_killed_inside_a_span_ends_it(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import gevent
        waits = brick.brick("waits")
        def work():
            with waits: gevent.sleep(3600)
        greenlets = [gevent.spawn(work) for _ in range(50)]
        gevent.sleep(0)
        gevent.killall(greenlets)
        """,
    )
    assert counts(got) == {("waits",): 50}
    assert spans(got) == {"begun": 50, "summarized": 50}
