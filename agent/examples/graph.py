"""graph.py - the execution graph under the old profiler's names: layers, bricks and the kernels that they launch.

  $ python3 graph.py

What to copy: a scope per layer; a kernel is recorded after the brick that launched it.
"""

import brick_agent as brick
from brick_agent import BrickId, ExecutionNode, TransferDirection

profiler = brick.BrickProfiler.enabled("decode")
profiler.enable_graph()
source = profiler.graph_register_source("rmsnorm_kernel", ".visible .entry rmsnorm_kernel() { ret; }")

profiler.graph_record_transfer("tokens", "gpu0", 4096, TransferDirection.H2D)
profiler.graph_push_scope(ExecutionNode.Layer(0))
profiler.graph_record_brick(BrickId.RmsNorm, 50_000, 4096)
profiler.graph_record_kernel("rmsnorm_kernel", source, (16, 1, 1), (256, 1, 1), 1024)
profiler.graph_record_brick(BrickId.QkvProjection, 200_000, 4096)
profiler.graph_record_kernel("qkv_gemm", None, (32, 4, 1), (128, 1, 1), 0)
profiler.graph_add_dependency(BrickId.RmsNorm, BrickId.QkvProjection)
profiler.graph_pop_scope()

print(f"balanced {profiler.graph_is_scope_balanced()}, source {source:016x}")
print(profiler.graph_to_ascii_tree(), end="")
