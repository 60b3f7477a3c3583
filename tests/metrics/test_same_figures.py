"""All surfaces that show the same work have the same counts and sums."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from faults import Start
from metric_pages import get, parsed, value
from pprof_reader import profile
from running import running, until
from test_record import recording
from verbs import SPANS, brickd, document

from brickd import live

WORKING = f"brick.init()\npause()\n{SPANS}"
Figures = dict[str, tuple[int, int]]  # by brick: the count of spans, and the self time in ns


def figures(rows: Iterable[Mapping[str, Any]]) -> Figures:
    return {row["name"]: (row["count"], row["self_ns"]) for row in rows}


@pytest.mark.ci
def test_every_surface_has_the_same_counts_and_sums(worker: Start, tmp_path: Path) -> None:
    file, exported = tmp_path / "run.brick", tmp_path / "run.pb.gz"
    with running(options=("--http", "127.0.0.1:0", "--metrics")) as daemon:
        one = worker(WORKING, BRICKD_SERVICE="api", BRICKD_WORKER="0")
        one.paused()
        daemon.until("worker_found")
        with recording("--spans", "-o", str(file)) as process:
            one.go()
            one.paused()
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
        shown = document("bricks", "--over", "start")["bricks"]
        expected = figures(shown)
        assert {name: count for name, (count, _) in expected.items()} == {"norm": 100, "gemm": 100}
        assert figures(document("status", "--over", "start")["bricks"]) == expected
        assert figures(live().bricks()) == expected
        assert figures(document("bricks", str(file))["bricks"]) == expected

        # A page keeps the first measured length of a tick. Later ones differ from it by less than 0.1 %.
        page = parsed(get(re.findall(r"http://(\S+)/metrics", daemon.said)[0]).body)
        for row in shown:
            for family, labels in (("span", {}), ("worker_span", {"worker": "api/0"})):
                name, about = f"brickd_{family}_seconds", {"service": "api", "brick": row["name"]} | labels
                assert value(page, f"{name}_count", **about) == row["count"]
                assert value(page, f"{name}_sum", **about) * 1e9 == pytest.approx(row["total_ns"], rel=0.001, abs=1)

        (slot,) = until(lambda: [each for each in document("history", "--every", "10s")["slots"] if each["count"]])
        assert slot["count"] == sum(count for count, _ in expected.values())
        assert slot["self_ns"] == pytest.approx(sum(self_ns for _, self_ns in expected.values()), rel=0.001, abs=1)

    # An export has the duration of each span in whole ns.
    assert brickd("export", str(file), "-f", "pprof", "-o", str(exported)).returncode == 0
    samples, _ = profile(exported.read_bytes())
    found = {sample["stack"][0]: sample["values"] for sample in samples}
    assert found.keys() == expected.keys()
    for brick, (count, self_ns) in found.items():
        assert count == expected[brick][0]
        assert self_ns == pytest.approx(expected[brick][1], abs=2 * count)
