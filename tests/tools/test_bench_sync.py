"""`scripts/bench sync`: its goals are the claims of the older profiler, and each mode waits exactly as often as it
should.
"""

from __future__ import annotations

import pytest
from benchmarks import passes
from conftest import ROOT
from faults import Start

pytestmark = pytest.mark.ci  # these tests check a script, not brickd


def test_the_goals_are_the_claims_of_the_seed() -> None:
    goals = {each.case: each.goal.limit for each in passes.COMPARISONS if each.goal is not None}
    assert goals == {
        "prefill, Immediate": 3,
        "prefill, PerLayer": 1.2,
        "prefill, Deferred": 1.05,
        "prefill, Off": 1.02,
    }


@pytest.mark.parametrize(
    ("mode", "syncs", "bricks"),
    [("Immediate", passes.BRICKS, passes.BRICKS), ("PerLayer", passes.SIZE.layers + 1, passes.BRICKS),
     ("Deferred", 1, passes.BRICKS), ("None", 0, 0)],
)  # fmt: skip
def test_each_mode_waits_as_often_as_stated(worker: Start, prefix: str, mode: str, syncs: int, bricks: int) -> None:
    process = worker(
        f"""
import numpy
sys.path.insert(0, {str(ROOT / "scripts")!r})
from benchmarks import passes
from brickd.demo.transformer import RequestCache, Model, drawn
waits = []
p = brick.BrickProfiler.enabled(); p.set_sync_mode({mode!r}, sync=lambda: waits.append(1))
hooked = passes.Hooked(p)
names = set()
def operate(place, compute, inputs):
    names.add(place.kernel)
    return hooked.operate(place, compute, inputs)
cache = RequestCache(passes.SIZE)
tokens = Model(passes.SIZE, drawn(passes.SIZE, 1), operate).forward(cache.tokens[:1] + 7, cache, 0)
hooked.over()
own = [each for each in p.all_brick_stats() if each.name in names]
# The model's own spans of the same names are the host's; it has one of each.
report([len(waits), sum(each.count for each in own) - passes.BRICKS, p.pending_count(), len(tokens)])
""",
        BRICKD_FINGERPRINTS="off",
    )
    assert process.next_report() == [syncs, bricks, 0, 1]
    assert process.end() == 0, process.stderr
