"""profiler.py - the old profiler's names: timed bricks, and the report.

  $ python3 profiler.py

What to copy: start_brick and stop_brick around the timed code; record_elapsed if something else measured the time.
"""

import brick_agent as brick
from brick_agent import BrickCategory, BrickId

profiler = brick.BrickProfiler.enabled("decode")

timer = profiler.start_brick(BrickId.Sampling)
chosen = max(range(1000), key=lambda token: token * 7919 % 1000)
profiler.stop_brick(timer, elements=1)
print(f"token {chosen}, {profiler.stats_for(BrickId.Sampling).count} sample")

profiler.reset()
measured_ns = {
    BrickId.RmsNorm: 104_633,
    BrickId.QkvProjection: 253_767,
    BrickId.AttentionScore: 203_633,
    BrickId.GateProjection: 348_000,
    BrickId.DownProjection: 348_000,
}
for id, ns in measured_ns.items():
    for _ in range(3):
        profiler.record_elapsed(id.name, ns, elements=4096)

attention = profiler.category_stats()[BrickCategory.Attention]
norm = profiler.stats_for(BrickId.RmsNorm)
print(f"attention {attention.percentage:.1f} % of the time")
print(f"norm {norm.avg_us():.1f} us on average, {norm.gap_factor(80):.2f} of its budget of 80 us")
print("\n".join(profiler.report(columns=["p95", "cv"]).splitlines()[2:]))
