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
for id, ns in ((BrickId.RmsNorm, 50_000), (BrickId.QkvProjection, 200_000), (BrickId.AttentionScore, 150_000)):
    for _ in range(4):
        profiler.record_elapsed(id.name, ns, elements=4096)

attention = profiler.category_stats()[BrickCategory.Attention]
print(f"attention {attention.percentage:.1f} % of the time, norm {profiler.stats_for(BrickId.RmsNorm).avg_us():.1f} us")
print(f"over its budget of 40 us: {profiler.stats_for(BrickId.RmsNorm).gap_factor(40):.2f}")
print("\n".join(profiler.report(columns=["p95", "cv"]).splitlines()[2:]))
