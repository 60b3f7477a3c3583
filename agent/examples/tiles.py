"""tiles.py - the tiles of a kernel's loops by level: timed here, or measured elsewhere.

$ python3 tiles.py

What to copy: start_tile and stop_tile around a tile; Brick.record if something else measured the time.
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

profiler = brick.BrickProfiler.enabled("device")
measured = (
    ("macro", 128, 1_234_500, 1_048_576, 0.5),
    ("midi", 2048, 78_200, 65_536, 2),
    ("micro", 32768, 4_900, 4_096, 4),
)
for level, tiles, ns, elements, flops_per_byte in measured:
    timed = brick.brick(f"tile.{level}", category="tile")
    for _ in range(tiles):
        timed.record(ns, elements, bytes=4 * elements, flops=flops_per_byte * 4 * elements)
print("\n".join(profiler.summary().splitlines()[2:]))
