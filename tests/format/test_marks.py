"""Marks: launches, transfers and needs are counted at their path, without a time and without a daemon."""

from __future__ import annotations

from collections import Counter

import dtypes
import pytest
from conftest import Worker, reading
from faults import Start
from hypothesis import given
from hypothesis import strategies as st

from brickd.model.summary_fold import SummaryFold
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.losses import losses
from brickd.shm.segment_copy import CallPath, Reading

UNITS = {
    _reader.UNIT_TICKS: "ticks",
    _reader.UNIT_NS: "ns",
    _reader.UNIT_LAUNCHED: "launched",
    _reader.UNIT_SHAPED: "shaped",
    _reader.UNIT_H2D: "h2d",
    _reader.UNIT_D2H: "d2h",
    _reader.UNIT_D2D: "d2d",
    _reader.UNIT_RETURNED: "returned",
    _reader.UNIT_NEEDS: "needs",
    _reader.UNIT_DEFINED: "defined",
    _reader.UNIT_ENDED: "ended",
    _reader.UNIT_NODE: "node",
    _reader.UNIT_TASK: "task",
    _reader.UNIT_ROWS: "rows",
}


def recorded(worker: Start, prefix: str, source: str, **environment: str) -> Reading:
    """Return the reading of a program's segment after its work."""
    process: Worker = worker(source + "\npause()\n", **environment)
    process.paused()
    got = reading(prefix)
    process.go()
    assert process.end() == 0, process.stderr
    return got


def marks(of: Reading) -> dict[tuple[str, ...], int]:
    """Return the count of each mark, keyed by the names and units on the path to the mark."""

    def way(path: CallPath) -> tuple[str, ...]:
        above = of.paths[path.parent] if path.parent >= 0 else None
        layer = "" if path.layer < 0 else f"@{path.layer}"
        return (*(() if above is None else way(above)), f"{of.name(path.name)}{layer}:{UNITS[path.unit]}")

    counts = dtypes.summaries(of.summaries)["count"]
    return {
        way(path): int(counts[number])
        for number, path in enumerate(of.paths)
        if path is not None and path.marks and counts[number]
    }


def test_launches_are_counted_by_path_and_shape(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
for n in range(3):
    with brick.layer(2), brick.span("RmsNorm"):
        brick.kernel("rmsnorm_kernel", grid=(16, 1, 1), block=(256, 1, 1), shared_mem=1024)
        brick.kernel("rmsnorm_kernel", 16, 256, 1024)
        brick.kernel("gemm", (16, 4), (32, 8, 2), source=0xCBF29CE484222325)
    brick.kernel("alone")
""",
    )
    norm = ("RmsNorm@2:ticks", "rmsnorm_kernel@2:launched")
    gemm = ("RmsNorm@2:ticks", "gemm@2:launched")
    assert marks(got) == {
        norm: 6,
        (*norm, "<<<16,256,1>>> smem=1024B:shaped"): 6,
        gemm: 3,
        (*gemm, "<<<16x4,32,8,2>>> smem=0B @cbf29ce484222325:shaped"): 3,
        ("alone:launched",): 3,
    }
    assert ledger_of(got).document()["marks"] == {"wanted": 21, "refused": 0, "removed": 0}
    assert got.category(next(n for n, name in enumerate(got.names) if name and name[0] == "gemm")) == "kernel"


def test_a_launch_with_a_given_time_counts_as_both(worker: Start, prefix: str) -> None:
    got = recorded(worker, prefix, "brick.kernel('gemm', elapsed_ns=1500, flops=2e6)\nbrick.kernel('gemm', flops=1e6)")
    assert marks(got) == {("gemm:launched",): 2}
    (given_row,) = [n for n, path in enumerate(got.paths) if path is not None and path.unit == _reader.UNIT_NS]
    row = dtypes.summaries(got.summaries)[given_row]
    assert (row["count"], row["total"]) == (1, 1500)


def test_marks_are_neither_rows_of_a_fold_nor_part_of_a_time(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        "with brick.span('norm'):\n    brick.kernel('k', 1, 1)\n    brick.needs('x')\n    brick.transfer('H2D', 9)",
    )
    fold: SummaryFold[str] = SummaryFold()
    fold.add(got, lambda path, _: got.name(path.name))
    rows = {key: fold.row(number) for number, key in enumerate(fold.keys)}
    assert {key for key, row in rows.items() if row["count"]} == {"norm"}
    assert rows["norm"]["self_ns"] == rows["norm"]["total_ns"] > 0


def test_marks_are_not_in_the_statistics_of_a_profiler(worker: Start, prefix: str) -> None:
    process = worker("""
profiler = brick.BrickProfiler.enabled()
timer = profiler.start("norm")
brick.kernel("norm_kernel", 16, 256)
brick.kernel("gemm", elapsed_ns=100)
brick.transfer("H2D", 4096)
profiler.stop(timer)
report([each.name for each in profiler.all_brick_stats()])
""")
    assert sorted(process.next_report()) == ["gemm", "norm"]
    assert process.end() == 0


def test_a_transfer_in_the_opposite_direction_counts_once_as_returned(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
brick.transfer("H2D", 4096, src="tokens", dst="gpu0")
brick.transfer("D2H", 4096, src="gpu0", dst="tokens")    # returned
brick.transfer("D2H", 4096, src="gpu0", dst="tokens")    # nothing is left that it could return
brick.transfer("H2D", 4096, src="tokens", dst="gpu0")    # returns that
brick.transfer("H2D", 4096, src="tokens", dst="gpu0")
brick.transfer("D2H", 4095, src="gpu0", dst="tokens")    # not as many
brick.transfer("D2H", 4096, src="gpu0", dst="other")     # not to where they came from
brick.transfer("D2D", 4096, src="gpu0", dst="tokens")    # not to the host
""",
    )
    assert marks(got) == {
        ("tokens→gpu0:h2d",): 3,
        ("gpu0→tokens:d2h",): 3,
        ("gpu0→other:d2h",): 1,
        ("gpu0→tokens:d2d",): 1,
        ("gpu0→tokens:d2h", "gpu0→tokens:returned"): 1,
        ("tokens→gpu0:h2d", "tokens→gpu0:returned"): 1,
    }
    moved = dtypes.summaries(got.summaries)["bytes"]
    assert sum(int(n) for n in moved) == 8 * 4096 - 1 + 2 * 4096


def test_a_dependency_is_recorded_below_the_brick_that_needs_it(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
with brick.layer(1), brick.span("block"):
    brick.needs("up", brick="down")
    with brick.span("attention"):
        brick.needs("qkv")
brick.needs("nobody's")
""",
    )
    assert marks(got) == {
        ("block@1:ticks", "down@1:ticks", "up:needs"): 1,
        ("block@1:ticks", "attention@1:ticks", "qkv:needs"): 1,
    }
    assert ledger_of(got).document()["marks"] == {"wanted": 3, "refused": 1, "removed": 0}


@pytest.mark.parametrize(
    "bad",
    [
        "0",
        "-1",
        "2**32",
        "(1, 0)",
        "(0, 0, 1)",
        "(0, 1, 0)",
        "()",
        "(1, 1, 1, 1)",
        "'wide'",
        "1.5",
        "object()",
        "(2**64, 1)",
    ],
)
def test_an_invalid_shape_is_counted_and_so_is_its_launch(worker: Start, prefix: str, bad: str) -> None:
    got = recorded(worker, prefix, f"brick.kernel('k', grid={bad}, block=32)\nbrick.kernel('k', 32, {bad})")
    assert marks(got) == {("k:launched",): 2}
    assert sum(lane["amounts"] for _, lane, _ in got.lanes) == 2


@pytest.mark.parametrize("bad", ["-1", "2**64", "1.5", "b'ptx'", "object()"])
def test_an_invalid_source_is_counted_and_so_is_its_launch(worker: Start, prefix: str, bad: str) -> None:
    got = recorded(worker, prefix, f"brick.kernel('k', 16, 256, source={bad})\nbrick.kernel('k', source={bad})")
    assert marks(got) == {("k:launched",): 2}
    assert sum(lane["amounts"] for _, lane, _ in got.lanes) == 2


def test_a_grid_without_a_block_is_not_a_shape(worker: Start, prefix: str) -> None:
    got = recorded(worker, prefix, "brick.kernel('k', grid=4)\nbrick.kernel('k', shared_mem=2**40)")
    assert marks(got) == {("k:launched",): 2}
    assert sum(lane["amounts"] for _, lane, _ in got.lanes) == 2


def test_invalid_marks_raise_in_strict_mode(worker: Start, prefix: str) -> None:
    source = """
brick.init()
tries = ["kernel('k', 0, 1)", "kernel('k', source=1.5)", "transfer('UP', 1)", "transfer('H2D', -1)",
         "kernel('k', elapsed_ns=-1)", "kernel(3)"]
for tried in tries:
    try:
        eval("brick." + tried)
    except (ValueError, TypeError) as error:
        assert "BRICKD_STRICT" in str(error), error
    else:
        raise AssertionError(tried)
"""
    recorded(worker, prefix, source, BRICKD_STRICT="1")


MODEL = """
with brick.span("prefill"):
    for layer in range(32):
        with brick.layer(layer), brick.span("layer"):
            for number in range(10):
                with brick.span(f"operator{number}"):
                    for rows in (1, 16, 256, 4096):
                        brick.kernel(f"kernel{number}", grid=(rows, layer + 1), block=256)
"""


@pytest.mark.ci
def test_two_phases_of_32_layers_with_ten_kernels_of_four_shapes_have_room(worker: Start, prefix: str) -> None:
    step = """
tensor = b"0123" * 16
with brick.step(1):
    for layer in range(32):
        for number in range(10):
            brick.checksum(f"kernel{number}", tensor, layer=layer, input=[tensor, tensor])
"""
    got = recorded(worker, prefix, MODEL + MODEL.replace("prefill", "decode") + step)
    account = ledger_of(got)
    assert losses(got, account) == []
    kinds = Counter(UNITS[path.unit] for path in got.paths[1:] if path is not None)
    assert kinds == {"ticks": 1 + 2 * (1 + 32 + 320), "launched": 2 * 320, "shaped": 2 * 4 * 320}
    assert set(marks(got).values()) == {1, 4}
    assert (account.marks["refused"], account.rejected.total(), account.events_dropped.total()) == (0, 0, 0)
    assert len([site for site in got.sites if site is not None]) == 320


@pytest.mark.ci
def test_what_a_loss_says_to_raise_is_enough_for_the_next_start(worker: Start, prefix: str) -> None:
    got = recorded(worker, prefix, MODEL, BRICKD_PATHS="1024")
    (loss,) = losses(got, ledger_of(got))
    (setting,) = loss.settings
    name, _, value = setting.partition("=")
    again = recorded(worker, prefix, MODEL, **{name: value})
    assert (name, losses(again, ledger_of(again))) == ("BRICKD_PATHS", [])


def test_the_names_of_shapes_without_a_path_are_advised_before_they_are_needed(worker: Start, prefix: str) -> None:
    program = """
for number in range(300):
    brick.kernel(f"kernel{number % 3}", grid=number + 1, block=32)
"""
    got = recorded(worker, prefix, program, BRICKD_PATHS="64", BRICKD_NAMES="512")
    (loss,) = losses(got, ledger_of(got))
    settings = dict(each.split("=") for each in loss.settings)
    assert settings.keys() == {"BRICKD_PATHS", "BRICKD_NAMES"}
    again = recorded(worker, prefix, program, **settings)
    assert losses(again, ledger_of(again)) == []


@pytest.mark.ci
def test_a_loop_asks_for_no_more_places_than_one_of_its_iterations(worker: Start, prefix: str) -> None:
    loop = "for step in range(40):" + MODEL.replace("\n", "\n    ").rstrip(" ")
    once = recorded(worker, prefix, MODEL, BRICKD_PATHS="1024")
    (needed,) = losses(once, ledger_of(once))
    got = recorded(worker, prefix, loop, BRICKD_PATHS="1024")
    (estimate,) = losses(got, ledger_of(got))
    assert (needed.again, estimate.again) == ("", "the values are estimates: a name refused twice counts twice")
    assert estimate.settings == needed.settings


def test_spans_without_a_name_need_a_name_and_a_path_each(worker: Start, prefix: str) -> None:
    program = """
for layer in range(3):
    with brick.layer(layer):
        for number in range(200):
            with brick.span(f"brick{number}"): pass
"""
    got = recorded(worker, prefix, program, BRICKD_NAMES="64", BRICKD_PATHS="256")
    (loss,) = losses(got, ledger_of(got))
    named = got.process["names"] - 1
    assert loss.settings == (f"BRICKD_NAMES={64 + 3 * (200 - named)}", f"BRICKD_PATHS={1 + 3 + 3 * 200}")
    assert (loss.kind, loss.again) == ("tables", "")
    again = recorded(worker, prefix, program, **dict(each.split("=") for each in loss.settings))
    assert losses(again, ledger_of(again)) == []


@pytest.mark.ci
def test_a_million_kinds_of_launches_use_at_most_half_of_the_tables(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
with brick.span("before"):
    pass
for n in range(1, 1_000_001, 500):
    brick.kernel("one", grid=n, block=32)
    brick.kernel(f"kernel{n}", grid=1, block=32)
for n in range(400):
    with brick.span(f"later{n % 40}"):
        pass
""",
        BRICKD_PATHS="4096",
    )
    paths, marked = got.header["paths"], sum(1 for path in got.paths if path is not None and path.marks)
    assert marked <= paths // 2
    found = marks(got)
    assert found["one:launched",] == 2_000, "no launch is lost because of its shape"
    account = ledger_of(got)
    assert account.marks["wanted"] - account.marks["refused"] == sum(found.values())
    assert account.marks["wanted"] == 8_000
    (loss,) = [each for each in losses(got, account) if each.kind == "marks"]
    assert f"BRICKD_PATHS={2 * (got.process['paths'] + account.marks['refused'])}" in loss.settings
    spans = Counter({got.name(p.name): 1 for p in got.paths if p is not None and not p.marks})
    assert all(spans[f"later{n}"] for n in range(40)), "spans still have room"


@given(st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1))
def test_the_longest_shape_fits_into_a_name(a: int, b: int, c: int) -> None:
    text = f"<<<{a}x{b}x{c},{a},{b},{c}>>> smem={2**32 - 1}B @{2**64 - 1:016x}"
    assert len(text) <= 120


def test_kernels_and_buffers_leave_half_of_the_names_for_timed_bricks(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
class Text(str): pass
for n in range(200):
    brick.kernel(f"kernel{n}", 1, 32)
    brick.kernel(Text(f"text{n}"))
    brick.transfer("H2D", 64, src=f"buffer{n}", dst="gpu0")
    brick.needs(f"needed{n}", brick=f"needing{n}")
for n in range(30):
    with brick.span(f"timed{n}"): pass
brick.kernel("kernel0", 1, 32)
""",
        BRICKD_NAMES="128",
        BRICKD_PATHS="128",
    )
    found = {got.name(path.name) for path in got.paths if path is not None and not path.marks}
    assert {f"timed{n}" for n in range(30)} <= found
    assert marks(got)["kernel0:launched",] == 2, "a known name is still counted"
    account = ledger_of(got)
    assert account.marks["wanted"] - account.marks["refused"] == sum(marks(got).values())
    assert account.marks["wanted"] == 200 * 5 + 2
    (loss,) = [each for each in losses(got, account) if each.kind == "names"]
    assert "half of the 128 names were used (the limit for marks)" in loss.text


def test_dependencies_leave_half_of_the_paths_for_timed_bricks(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
for n in range(500):
    brick.needs("x", brick=f"needing{n}")
for n in range(60):
    with brick.span(f"timed{n}"): pass
""",
        BRICKD_PATHS="128",
    )
    found = {got.name(path.name) for path in got.paths if path is not None and not path.marks}
    assert {f"timed{n}" for n in range(60)} <= found
    assert ledger_of(got).marks["wanted"] == 500


def test_a_kernel_without_its_own_name_shares_no_counter(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        "brick.kernel('')\nbrick.kernel(7.5, 1, 32)\nwith brick.span('other'): pass",
    )
    assert marks(got)["other:launched",] == 1
    assert marks(got)["<float>:launched",] == 1
    assert "kernel" not in [got.category(n) for n, name in enumerate(got.names) if name and name[0] == "other"]


def test_a_transfer_of_one_thread_is_not_returned_by_another_in_its_lane(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
import threading
for way, ends in (("H2D", ("a", "b")), ("D2H", ("b", "a"))):
    thread = threading.Thread(target=lambda: brick.transfer(way, 64, src=ends[0], dst=ends[1]))
    thread.start()
    thread.join()
""",
    )
    assert marks(got) == {("a→b:h2d",): 1, ("b→a:d2h",): 1}
    assert sum(lane["opened"] for _, lane, _ in got.lanes) == 2
    assert sum(1 for _, lane, _ in got.lanes if lane["opened"]) == 1


def test_a_refused_transfer_cannot_be_returned(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
brick.transfer("UP", 64, src="a", dst="b", elapsed_ns=5)
brick.transfer("D2H", 64, src="b", dst="a")
brick.transfer("H2D", 64, src="", dst="")
brick.transfer("D2H", 64, src="", dst="", elapsed_ns=5)
""",
    )
    assert marks(got) == {("b→a:d2h",): 1}
    account = ledger_of(got)
    assert account.marks == {"wanted": 4, "refused": 3}
    assert sum(lane["rejected"][0] + lane["rejected"][1] for _, lane, _ in got.lanes) == 2, (
        "two given times had no room for a path"
    )


def test_a_known_shape_is_counted_after_the_tables_are_full(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
import threading
brick.kernel("k", 16, 256)
brick.transfer("H2D", 1, src="a", dst="b")
for n in range(40):
    with brick.span(f"timed{n}"): pass
def again():
    brick.kernel("k", 16, 256)
    brick.kernel("k", 17, 256)
    brick.kernel("k", 17, 256)
    brick.transfer("H2D", 1, src="a", dst="b")
again()
thread = threading.Thread(target=again)
thread.start()
thread.join()
""",
        BRICKD_NAMES="64",
    )
    assert marks(got) == {
        ("k:launched",): 7,
        ("k:launched", "<<<16,256,1>>> smem=0B:shaped"): 3,
        ("a→b:h2d",): 3,
    }
    assert ledger_of(got).marks == {"wanted": 17, "refused": 4}


@pytest.mark.parametrize(
    "call",
    [
        "kernel()",
        "kernel('k', 1, 2, 3, 4)",
        "kernel('k', 1, grid=2)",
        "kernel('k', grids=1)",
        "transfer('H2D')",
        "transfer('H2D', 1, 'src')",
        "transfer('H2D', 1, to='x')",
        "needs()",
        "needs('a', 'b', 'c')",
    ],
)
def test_an_impossible_call_is_a_type_error(worker: Start, prefix: str, call: str) -> None:
    recorded(
        worker,
        prefix,
        f"try: brick.{call}\nexcept TypeError as error: assert str(error).startswith('brick_agent: '), error\n"
        "else: raise AssertionError\nbrick.needs(needed='x', brick='b')",
    )


def test_keywords_built_at_run_time_are_recognized(worker: Start, prefix: str) -> None:
    got = recorded(
        worker,
        prefix,
        """
for _ in range(2):
    brick.kernel(**{"".join(["na", "me"]): "k", "".join(["gr", "id"]): 4, "block": (2, 2)})
""",
    )
    assert marks(got) == {("k:launched",): 2, ("k:launched", "<<<4,2,2>>> smem=0B:shaped"): 2}


def test_launches_of_more_shapes_than_are_cached_are_counted_separately(worker: Start, prefix: str) -> None:
    got = recorded(worker, prefix, "for n in 2 * [*range(1, 201)]: brick.kernel('k', 1, n)")
    counted = {path[-1]: count for path, count in marks(got).items() if path[-1] != "k:launched"}
    assert len(counted) == 200
    assert set(counted.values()) == {2}
