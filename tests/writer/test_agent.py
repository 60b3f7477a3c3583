"""The records of the Python API, as a reader in another process sees them."""

from __future__ import annotations

from pathlib import Path

import forge
import pytest
from conftest import reading, readings
from recorded import Start, counts, record, spans, summaries

from brickd.shm.segment_copy import Reading


def test_a_span_is_counted_under_its_name(worker: Start, prefix: str) -> None:
    got = record(worker, prefix, 'with brick.brick("rms_norm", category="norm"): pass')
    assert counts(got) == {("rms_norm",): 1}
    assert spans(got) == {"begun": 1, "summarized": 1}
    assert got.category(got.paths[1].name if got.paths[1] else 0) == "norm"


@pytest.mark.interpreter
def test_importing_opens_nothing(worker: Start, prefix: str) -> None:
    process = worker('b = brick.brick("made before anything is open")\npause()')
    process.paused()
    assert readings(prefix) == []
    process.go()
    assert process.end() == 0


def test_every_way_to_record_a_span_counts_it(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        from contextlib import ExitStack
        b = brick.brick("b")
        with b: pass
        with b(elements=3, bytes=5): pass
        with b(): pass
        b.start(); b.stop()
        b.start(); b.stop(7, bytes=11)
        with brick.span("b"): pass
        with brick.span("b", elements=13, step="request 9"): pass
        with ExitStack() as stack:
            stack.enter_context(b)
            stack.enter_context(b(elements=17))
        """,
    )
    rows = summaries(got)
    assert sum(row["count"] for row in rows.values()) == 9
    assert sum(row["elements"] for row in rows.values()) == 3 + 7 + 13 + 17
    assert sum(row["bytes"] for row in rows.values()) == 5 + 11


def test_spans_nest_into_paths_and_layers(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        block, attention = brick.brick("block"), brick.brick("attention", "attention")
        for index in range(3):
            with brick.layer(index), block:
                for _ in range(2):
                    with attention: pass
        """,
    )
    wanted: dict[tuple[str, ...], int] = {(f"block[{index}]",): 1 for index in range(3)}
    wanted |= {(f"block[{index}]", f"attention[{index}]"): 2 for index in range(3)}
    assert counts(got) == wanted


def test_self_time_is_the_time_outside_of_children(worker: Start, prefix: str) -> None:
    rows = summaries(
        record(
            worker,
            prefix,
            """
            outer, inner = brick.brick("outer"), brick.brick("inner")
            for _ in range(100):
                with outer:
                    with inner: sum(range(1000))
                    with inner: sum(range(1000))
            """,
        )
    )
    outer, inner = rows[("outer",)], rows[("outer", "inner")]
    assert outer["self_ns"] == pytest.approx(outer["total_ns"] - inner["total_ns"])
    assert 0 < outer["self_ns"] < outer["total_ns"]


def test_a_recursion_a_thousand_deep_takes_one_path_and_counts_once(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        sys.setrecursionlimit(5000)
        b, leaf = brick.brick("fall"), brick.brick("leaf")
        def fall(depth):
            with b:
                if depth: fall(depth - 1)
                else:
                    with leaf: pass
        with brick.span("all"): fall(999)
        """,
    )
    rows = summaries(got)
    assert {path: row["count"] for path, row in rows.items()} == {
        ("all",): 1,
        ("all", "fall"): 1000,
        ("all", "fall", "leaf"): 1,
    }
    assert rows[("all", "fall")]["total_ns"] <= rows[("all",)]["total_ns"]
    assert rows[("all", "fall")]["self_ns"] <= rows[("all",)]["total_ns"]
    assert spans(got) == {"begun": 1002, "summarized": 1002}


def test_mutually_recursive_bricks_take_two_paths(worker: Start, prefix: str) -> None:
    rows = summaries(
        record(
            worker,
            prefix,
            """
            a, b = brick.brick("a"), brick.brick("b")
            def ping(n):
                with a:
                    if n: pong(n - 1)
            def pong(n):
                with b:
                    if n: ping(n - 1)
            ping(199)
            """,
        )
    )
    assert {path: row["count"] for path, row in rows.items()} == {("a",): 100, ("a", "b"): 100}
    assert rows[("a", "b")]["total_ns"] < rows[("a",)]["total_ns"]


def test_a_stop_without_a_start_is_counted_and_harmless(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import threading
        a, b = brick.brick("a"), brick.brick("b")
        with a:
            b.stop()
            b.start(); b.stop(); b.stop()
        a.start()
        thread = threading.Thread(target=a.stop); thread.start(); thread.join()
        a.stop()
        """,
    )
    assert spans(got) == {"begun": 3, "summarized": 3, "unmatched": 3}


def test_a_missing_stop_abandons_the_span_when_its_parent_ends(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        a, b = brick.brick("a"), brick.brick("b")
        for _ in range(3):
            with a:
                b.start()
        """,
    )
    assert spans(got) == {"begun": 6, "summarized": 3, "abandoned": 3}
    assert counts(got) == {("a",): 3}


def test_an_exception_passes_through_and_the_span_is_recorded(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        for manager in (brick.brick("b"), brick.brick("b")(elements=1), brick.layer(1)):
            try:
                with manager:
                    raise KeyError("mine")
            except KeyError as error:
                assert error.args == ("mine",)
        """,
    )
    assert spans(got) == {"begun": 2, "summarized": 2}


def flops(got: Reading) -> list[float]:
    return list(forge.flops(got).values())


def test_flops_are_added_up_however_a_span_is_recorded(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        b = brick.brick("b")
        with b(flops=1.5): pass
        with b(elements=1, flops=10**20): pass
        with brick.span("b", flops=2**60): pass
        b.start(); b.stop(1, 2, 4)
        b.start(); b.stop(flops=8)
        with b: pass
        """,
    )
    assert flops(got) == [float(10**20 + 2**60 + 13.5)]
    assert [(row["count"], row["elements"], row["bytes"]) for row in summaries(got).values()] == [(6, 2, 2)]


def test_flops_of_given_times_are_added_up(worker: Start, prefix: str) -> None:
    got = record(worker, prefix, 'b = brick.brick("b"); b.record(5, 1, 2, 3); b.record(5, flops=4)')
    assert flops(got) == [7]


@pytest.mark.parametrize("amount", ["-1", "2**81", "float('nan')", "float('inf')", "None", "'many'"])
def test_invalid_flops_are_counted_and_the_span_kept(worker: Start, prefix: str, amount: str) -> None:
    got = record(worker, prefix, f'with brick.brick("b")(flops={amount}, bytes=8): pass')
    assert [(row["count"], row["bytes"]) for row in summaries(got).values()] == [(1, 8)]
    assert (flops(got), [lane["amounts"] for _, lane, _ in got.lanes]) == ([], [1])


@pytest.mark.parametrize("amount", ["-1", "2**63", "2**200", "10**15", "1.5", "None", "'many'", "object()"])
def test_an_invalid_amount_is_counted_and_the_span_kept(worker: Start, prefix: str, amount: str) -> None:
    got = record(worker, prefix, f'with brick.brick("b")(elements={amount}, bytes=8): pass')
    assert [(row["count"], row["elements"], row["bytes"]) for row in summaries(got).values()] == [(1, 0, 8)]
    assert [lane["amounts"] for _, lane, _ in got.lanes] == [1]


def test_names_of_every_kind_are_accepted(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        for name in ("a" * 120, "é" * 200, "é" * 199 + "x", "\\n\\x1b[31m", "\\ud800", "", 7, None):
            with brick.span(name): pass
        """,
    )
    names = {entry[0] for entry in got.names if entry is not None}
    assert "a" * 120 in names
    assert "\n\x1b[31m" in names
    assert "\\ud800" in names
    assert {"<int>", "<NoneType>"} <= names
    assert len([name for name in names if name.startswith("é")]) == 2, "long names that differ get different numbers"
    assert all(len(name.encode()) <= 120 for name in names)
    assert got.process["names_cut"] == 2
    assert got.process["names_refused"] == 1
    assert spans(got) == {"begun": 8, "summarized": 8}


def test_names_and_paths_above_the_limit_become_other(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        brick.init(names=64, paths=64)
        for number in range(200):
            with brick.span(f"name {number}"): pass
        """,
    )
    rows = summaries(got)
    assert sum(row["count"] for row in rows.values()) == 200
    assert rows[("other",)]["count"] == 200 - 63
    assert got.process["names_refused"] > 0


def test_disabled_spans_are_not_recorded_and_open_ones_still_end(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        b = brick.brick("b")
        with b:
            brick.disable()
            with b: pass
        with b: pass
        brick.enable()
        with b: pass
        """,
    )
    assert spans(got) == {"begun": 2, "summarized": 2}


def test_brickd_0_turns_everything_off(worker: Start, prefix: str) -> None:
    process = worker('report(brick.init())\nwith brick.span("b"): pass\nbrick.enable()\npause()', BRICKD="0")
    assert process.next_report() is False
    process.paused()
    assert readings(prefix) == []
    process.go()
    assert process.end() == 0


def test_after_shutdown_everything_is_a_no_op(worker: Start, prefix: str) -> None:
    process = worker(
        """
        b = brick.brick("b")
        traced = brick.trace(lambda: 7)
        with b, brick.step(1):
            brick.shutdown()
        with b(elements=1), brick.layer(1), brick.step(2, rows=3): pass
        b.start(); b.stop(); b.record(5)
        assert traced() == 7
        brick.enable()
        brick.init()
        with brick.span("new"): pass
        """
    )
    assert process.end() == 0
    assert readings(prefix) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "b.stop()",
        "b(elements=-1)",
        "b(bytes=2**48 + 1)",
        "b(flops=-1)",
        "b.stop(flops='many')",
        "b.record('x')",
        "b.record(-1)",
        "brick.brick(7)",
        "brick.brick('')",
        "brick.brick('b63')",
        "brick.layer(-1)",
        "brick.layer(2**33)",
        "brick.step(1, rows=2, valid=3)",
    ],
)
def test_strict_mode_raises_errors_that_are_otherwise_counted(worker: Start, wrong: str) -> None:
    program = f"""
    brick.init(names=64)
    b = [brick.brick(f"b{{n}}") for n in range(63)][0]
    try: {wrong}
    except (RuntimeError, ValueError, TypeError) as error: report(str(error))
    report("nothing was raised")
    """
    assert "BRICKD_STRICT=1" in worker(program, BRICKD_STRICT="1").next_report()
    assert worker(program).next_report() == "nothing was raised"


def test_an_open_brick_is_visible(worker: Start, prefix: str) -> None:
    process = worker('with brick.span("all_reduce"):\n    pause()')
    process.paused()
    got = reading(prefix)
    (current,) = [lane["current"] for _, lane, _ in got.lanes]
    path = got.paths[current & 0xFFFF]
    assert path is not None
    assert got.name(path.name) == "all_reduce"
    assert spans(got) == {"begun": 1, "open": 1}
    process.kill()
    assert spans(reading(prefix)) == {"begun": 1, "abandoned": 1}


@pytest.mark.ci
@pytest.mark.interpreter
def test_service_and_worker_come_from_the_caller_or_the_environment(worker: Start, prefix: str) -> None:
    got = record(worker, prefix, "brick.init()", BRICKD_SERVICE="api", BRICKD_WORKER="2.tp3.pp1")
    assert (got.service, got.header["index"], got.coordinates) == ("api", 2, "2.tp3.pp1")
    got = record(worker, prefix, 'brick.init(service="mine", worker="7")', BRICKD_SERVICE="api")
    assert (got.service, got.header["index"], got.coordinates) == ("mine", 7, "")
    got = record(worker, prefix, "brick.init()", BRICKD_WORKER="left")
    assert (got.service, got.header["index"], got.coordinates) == ("python", -1, "left")


@pytest.mark.parametrize("clock", ["monotonic", "tsc"])
def test_both_clocks_measure_the_same(worker: Start, prefix: str, clock: str) -> None:
    got = record(
        worker,
        prefix,
        """
        import time
        with brick.span("b"):
            t = time.perf_counter_ns()
            while time.perf_counter_ns() - t < 20_000_000: pass
        """,
        BRICKD_CLOCK=clock,
    )
    (row,) = summaries(got).values()
    assert row["min_ns"] == pytest.approx(row["max_ns"])
    assert row["total_ns"] >= 19_900_000


def test_a_refused_name_is_not_that_of_a_brick_named_other(worker: Start, prefix: str) -> None:
    found = record(worker, prefix, "with brick.span(''): pass\nwith brick.span('other'): pass")
    _, *paths = found.paths
    assert [path.name for path in paths if path is not None] == [0, 1]
    assert (found.process["names"], found.process["names_refused"]) == (2, 1)


def test_neither_an_empty_name_nor_a_handle_opens_a_segment(worker: Start, prefix: str) -> None:
    process = worker('brick.brick(""); brick.brick("x"); brick.layer(1)\npause()\nwith brick.layer(1): pass\npause()')
    process.paused()
    assert readings(prefix) == []
    process.go()
    process.paused()
    got = reading(prefix)
    assert (got.service, got.process["names_refused"]) == ("python", 1)


@pytest.mark.parametrize("given", ["worker=3", "worker=object()", "service='\\udcff'", "service='a\\0b'", "lanes=None",
                                   "lanes=-1", "names=2**40", "paths='many'"])  # fmt: skip
def test_init_accepts_any_argument(worker: Start, prefix: str, given: str) -> None:
    got = record(worker, prefix, f"assert brick.init({given}) is True")
    assert got.header["lanes"] == 32


@pytest.mark.ci
def test_importing_the_agent_loads_nothing_else(worker: Start, prefix: str) -> None:
    process = worker(
        """
        import subprocess
        code = "import sys; before = set(sys.modules); import brick_agent; "
        code += "print(*sorted({sys.modules[name].__name__ for name in set(sys.modules) - before}))"
        report(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
        """
    )
    modules = ("_core", "_trace")
    assert process.next_report() == ["__future__", "brick_agent", *(f"brick_agent.{name}" for name in modules)]
    assert process.end() == 0


@pytest.mark.interpreter
def test_importing_the_agent_twice_gives_the_same_handles(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        with brick.brick("b"): pass
        for name in [name for name in sys.modules if name.startswith("brick_agent")]: del sys.modules[name]
        import brick_agent as again
        with again.brick("b"): pass
        """,
    )
    assert spans(got) == {"begun": 2, "summarized": 2}


def test_a_handle_first_used_while_disabled_records_later(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        with brick.span("outer"):
            brick.disable()
            with brick.span("inner"): pass
        brick.enable()
        with brick.span("inner"): pass
        """,
    )
    assert spans(got) == {"begun": 2, "summarized": 2}


def test_a_layer_left_while_disabled_is_left(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        b = brick.brick("b")
        with b: pass
        with brick.layer(3):
            brick.disable()
        with brick.layer(4): pass
        brick.enable()
        with b: pass
        """,
    )
    assert counts(got) == {("b",): 2}


def test_a_layer_without_its_scope_ends_no_other(worker: Start, prefix: str) -> None:
    got = record(
        worker,
        prefix,
        """
        a, b = brick.brick("a"), brick.brick("b")
        with brick.layer(1):
            a.start()
            with brick.layer(2):
                a.stop()
            with b: pass
        """,
    )
    assert counts(got) == {("a[1]",): 1, ("b[1]",): 1}
    assert spans(got) == {"begun": 2, "summarized": 2, "unmatched": 1}


def test_a_segment_has_the_start_times_of_machine_and_process(worker: Start, prefix: str) -> None:
    process = worker("brick.init(); pause()")
    process.paused()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    header = reading(prefix).header
    assert header["process_start"] == int(fields[19])
    assert header["boot_id"].hex() == Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
