"""tiles.py - the tiles of a kernel's loops, timed by level.

$ python3 tiles.py
"""

import brick_agent as brick
from brick_agent import TileLevel

SIZE, TILE = 64, 32
profiler = brick.BrickProfiler.enabled("matmul")
profiler.enable_tile_profiling()

for row in range(0, SIZE, TILE):
    for column in range(0, SIZE, TILE):
        tile = profiler.start_tile(TileLevel.Midi, row // TILE, column // TILE)
        total = sum(r * c for r in range(TILE) for c in range(TILE))
        profiler.stop_tile(tile, elements=TILE * TILE, flops=2 * TILE * TILE)

for of in profiler.all_tile_stats():
    print(f"{of.level.name:5}  {of.count} tiles  {of.arithmetic_intensity:.2f} FLOP/byte  {of.total_elements} elements")
print(f"below the peak: {0 < profiler.tile_stats('Midi').fraction_of_peak(1e6) < 1}")
