"""The names of the old tools work as before. This file also tests the formats of a profiler's report."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from array import array
from html.parser import HTMLParser
from types import SimpleNamespace

import brick_agent as brick
import pytest
from brick_agent import BrickCategory, KernelTrace, TraceRun
from brick_agent._compat.functions import processor_backend
from brick_agent._compat.profiler.report import ProfilerReport
from brick_agent._compat.profiler.report_pages import FORMATS, as_html, as_markdown
from brick_agent._compat.profiler.stats import BrickStats, by_category
from faults import Start
from test_profiler import report_of
from traced import T, trace_of

HOSTILE = '<script>alert("x")</script>|[a](javascript:b)`*_\n\x1b[2J&lt;'


def of(name: str) -> ProfilerReport:
    stats = BrickStats(name, "Other", count=2, total_ns=300, self_ns=300, min_ns=100, max_ns=200)
    stats.squares, stats.buckets = 50_000.0, {100.0: 1, 200.0: 1}
    bricks = [stats]
    return ProfilerReport({"name": name}, 1000, bricks, by_category(bricks, ()), [], {}, 1, {name: 1}, ("p95", "cv"))


# ---- a profiler's names ----------------------------------------------------------------------------------------------


def test_a_profilers_name_is_in_its_repr_and_reports(worker: Start, prefix: str) -> None:
    shown, lines, name, wrong = report_of(
        worker,
        """
import json
p = brick.BrickProfiler("decode")
shown = repr(p)
q = brick.BrickProfiler.enabled("prefill", mode="Immediate")
report([[shown, repr(q)], [p.report().splitlines()[0], p.summary() == p.report("text")],
        json.loads(q.to_json())["name"], brick.BrickProfiler(7).name])
""",
    )
    assert shown == [
        "BrickProfiler('decode', disabled, Deferred, 0 pending)",
        "BrickProfiler('prefill', enabled, Immediate, 0 pending)",
    ]
    assert lines[0].startswith("decode: 0 ns in bricks of ")
    assert lines[1]
    assert (name, wrong) == ("prefill", "")


def test_a_category_is_found_by_enumeration_number_and_name() -> None:
    cats = by_category([BrickStats("q", "Attention", count=3)], ("Norm", "Attention", "FFN", "Other"))
    assert cats[BrickCategory.Attention] is cats[1] is cats["Attention"]
    assert cats[1].count == 3
    assert list(cats) == ["Norm", "Attention", "FFN", "Other"], "only names are keys"
    for category in (*BrickCategory, *range(4), *cats):
        assert category in cats
        assert cats.get(category) is cats.get(category, 7) is cats[category]
    assert all(of is cats.get(name) for name, of in cats.items())
    for wrong in (4, -1, True, "attention"):
        assert wrong not in cats
        assert (cats.get(wrong), cats.get(wrong, 7)) == (None, 7)
        with pytest.raises(KeyError):
            cats[wrong]


def test_the_average_is_in_microseconds_and_over_budget_is_reported() -> None:
    stats = BrickStats("q", count=4, total_ns=10_000)
    assert stats.avg_us() == 2.5
    assert (stats.gap_factor(2.0), stats.gap_factor(0), BrickStats("none").gap_factor(1)) == (1.25, 0, 0)


def test_the_coefficient_of_variation_uses_measured_times_only() -> None:
    stats = BrickStats("q", count=3, total_ns=1300, squares=50_000.0, bounded=1, bounded_ns=1000)
    assert stats.cv == pytest.approx(50 / 150)
    assert BrickStats("none").cv == 0


def test_the_statistics_of_an_id_have_two_names(worker: Start, prefix: str) -> None:
    assert report_of(
        worker, "p.stop_brick(p.start_brick(3)); report([p.stats_for(3).count, p.brick_stats(3).count])"
    ) == [1, 1]


def test_true_is_not_a_brick_and_a_timer_shows_its_state(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
t = p.start_brick(2); shown = [repr(t)]; p.stop_brick(t); shown.append(repr(t))
none = p.start_brick(True)
report([*shown, repr(none), none.name, p.brick_stats(1).count])
""",
    )
    assert found == [
        "BrickTimer('QkvProjection', running)",
        "BrickTimer('QkvProjection', stopped)",
        "BrickTimer(not timed)",
        "other",
        0,
    ]


def test_a_subclass_may_override_start_and_the_profiler_has_the_fast_methods(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
class Own(brick.BrickProfiler):
    def start_brick(self, id): return super().start_brick(id + 1)
own = Own.enabled()
own.stop_brick(own.start_brick(1), 1)
try: _core._own_methods(int); refused = False
except TypeError: refused = True
report([own.brick_stats(2).count, refused, "start_brick" in vars(brick.BrickProfiler)])
""",
    )
    assert found == [1, True, True]


def test_a_timer_ends_although_its_sync_function_is_interrupted(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
def interrupted(): raise KeyboardInterrupt
p.set_sync_mode("Immediate", sync=interrupted)
try: p.stop_brick(p.start_brick(0), 7)
except KeyboardInterrupt: pass
p.set_sync_mode("Immediate", sync=None)
report([p.brick_stats(0).count, p.brick_stats(0).total_elements])
""",
    )
    assert found == [1, 7]


def test_more_timers_than_are_pooled_are_distinct(worker: Start, prefix: str) -> None:
    found = report_of(
        worker,
        """
for _ in range(3):
    timers = [p.start_brick(n % 15) for n in range(200)]
    names = [t.name for t in timers]
    for t in reversed(timers): p.stop_brick(t, 1)
    del timers, t
report([len(set(names)), sum(p.brick_stats(n).count for n in range(15)), p.total_tokens()])
""",
    )
    assert found[0] == 15
    assert found[1] == found[2] > 0


# ---- reports ---------------------------------------------------------------------------------------------------------


def test_p95_and_variation_are_optional_columns_and_always_in_the_json(worker: Start, prefix: str) -> None:
    plain, more, cv = report_of(
        worker,
        """
import json
for ns in (10_000, 30_000): p.record_elapsed("gemm", ns)
more = p.report(columns=(each for each in ("cv", "p95"))).splitlines()[2:4]
assert "P95" in p.report(columns="p95"), "a single one needs no list"
report([p.report().splitlines()[2], more, json.loads(p.report("json"))["bricks"][0]])
""",
    )
    assert "P95" not in plain
    assert "CV" not in plain
    assert more[0].split()[3:9] == ["TOTAL", "AVG", "P50", "P95", "CV", "P99"]
    assert "0.50" in more[1].split()
    assert cv["cv"] == pytest.approx(0.5)
    assert cv["p90_ns"] <= cv["p95_ns"] <= cv["p99_ns"]


def test_categories_and_tiles_have_both_columns_too(worker: Start, prefix: str) -> None:
    text, document, spans = report_of(
        worker,
        """
import json
for ns in (10_000, 30_000): p.record_elapsed("Softmax", ns)
p.record_elapsed("Rope", 20_000)
for name, ns in (("tile.midi", 1000), ("tile.midi", 3000)): p.record_elapsed(name, ns)
for _ in range(9):
    with brick.span("once"): pass
    once = p.stats("once")
    if once.count == 1: assert once.cv == 0, "a rounded total is no variation"
report([p.report(columns=["p95", "cv"]), json.loads(p.report("json")), p.stats("once").count])
""",
    )
    tables = [table.splitlines() for table in text.split("\n\n")[1:4]]
    assert [table[0].split()[0] for table in tables] == ["BRICK", "CATEGORY", "TILE"]
    assert all(table[0].count("P95   ") == table[0].count("CV") == 1 for table in tables)
    attention = next(each for each in document["categories"] if each["category"] == "Attention")
    assert (attention["count"], attention["total_ns"], round(attention["cv"], 3)) == (3, 60_000, 0.408)
    assert 27_000 <= attention["p95_ns"] <= 30_000
    midi = document["tiles"][1]
    assert (midi["count"], midi["cv"], spans) == (2, pytest.approx(0.5), 9)
    assert 2700 <= midi["p95_ns"] <= 3000


@pytest.mark.parametrize(
    "call",
    [
        "p.report('pdf')",
        "p.report(7)",
        "p.report(columns=['p42'])",
        "p.report(columns=5)",
        "p.report(columns=[[]])",
    ],
)
def test_an_unknown_format_or_column_is_refused_and_text_is_printed(worker: Start, prefix: str, call: str) -> None:
    text, mistakes = report_of(worker, f"text = {call}\nreport([text, p._local.mistakes])\n")
    assert " in bricks of " in text
    assert list(mistakes.values()) == [1]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_a_hostile_name_is_text_in_html() -> None:
    page = Page()
    page.feed(as_html(of(HOSTILE)))
    assert page.tags == {"html", "meta", "title", "body", "p", "table", "tr", "th", "td"}
    assert '<script>alert("x")</script>|[a](javascript:b)`*_\\n\\x1b[2J&lt;' in page.cells


def test_a_hostile_name_is_text_in_markdown() -> None:
    text = as_markdown(of(HOSTILE))
    (row,) = (line for line in text.splitlines() if line.startswith("| \\<script"))
    assert row.startswith(
        '| \\<script\\>alert("x")\\</script\\>\\|\\[a\\](javascript:b)\\`\\*\\_\\\\n\\\\x1b\\[2J\\&lt; | Other |'
    )
    assert "<" not in text.replace("\\<", "")


def test_all_formats_show_the_same_report() -> None:
    assert list(FORMATS) == ["text", "markdown", "html", "json"]
    assert json.loads(FORMATS["json"](of("gemm")))["bricks"][0]["name"] == "gemm"
    assert "| gemm | Other | 2 |" in as_markdown(of("gemm"))
    assert "pending: 1, which finalize() ends" in as_html(of("gemm"))


# ---- runs ------------------------------------------------------------------------------------------------------------


def run() -> TraceRun:
    base, new = TraceRun("base"), TraceRun("new")
    for each, by in ((base, 1.0), (new, 2.0)):
        each.add_trace(trace_of(T("rope", 3, "p", [by], backend="cpu")).with_time_us(2))
    new.compare_and_mark(base)
    return new


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda of: pickle.loads(pickle.dumps(of))])
def test_a_copy_of_a_run_is_complete_and_independent(copied: object) -> None:
    original = run()
    other = copied(original)  # type: ignore[operator]
    assert other.to_json() == original.to_json()
    assert (other.is_diverged(), other.divergence_diagnosis) == (True, original.divergence_diagnosis)
    other.add_trace(KernelTrace("norm"))
    other.clear()
    assert (len(original.traces), original.is_diverged()) == (1, True)


def test_a_runs_repr_shows_id_traces_and_divergence() -> None:
    assert repr(run()) == "TraceRun('new', 1 trace, diverged)"
    assert repr(TraceRun("base")) == "TraceRun('base', 0 traces)"


# ---- functions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "checksum"),
    [
        ([], 0xCBF29CE484222325),
        ([0.0], 0x4D25767F9DCE13F5),
        ([-0.0], 0x4D24F67F9DCD3A75),
        ([1.0], 0x4B72477F9C5C2F98),
        ([1, 2, 3], 0x1DE40D89811FE258),
        ([1.0] * 64, 0xEAFC787127B76D25),
        ([1.0] * 65, 0xEAFC787127B76D25),
    ],
)
def test_the_old_checksum_is_a_function(numbers: list[float], checksum: int) -> None:
    assert brick.fnv1a_f32_checksum(numbers) == brick.fnv1a_f32_checksum(array("f", numbers)) == checksum


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "backend"),
    [
        ("x86_64", "model name : avx512f\nflags\t\t: fpu sse2 avx2 avx512f\n", "avx512"),
        ("x86_64", "flags\t\t: fpu sse2 avx2\n", "avx2"),
        ("x86_64", "model name\t: avx2\nflags\t\t: fpu sse2\n", "sse2"),
        ("x86_64", "flags\t\t: fpu asimd\n", "scalar"),
        ("aarch64", "Features\t: fp asimd\n", "neon"),
        ("riscv64", "", "scalar"),
    ],
)
def test_the_backend_is_the_widest_vector_unit(machine: str, cpuinfo: str, backend: str) -> None:
    assert processor_backend(machine, cpuinfo) == backend


def test_the_backend_is_the_device_if_torch_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = brick.detect_backend()
    for is_available, backend in ((lambda: True, "cuda"), (lambda: False, processor)):
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=is_available)))
        assert brick.detect_backend() == backend
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert brick.detect_backend() == processor


def test_a_report_names_the_backend(worker: Start, prefix: str) -> None:
    line, named, backend = report_of(
        worker,
        """
import json
report([p.report().splitlines()[0], json.loads(p.to_json())["backend"], brick.detect_backend()])
""",
    )
    assert line.endswith(f", backend {backend}")
    assert named == backend
