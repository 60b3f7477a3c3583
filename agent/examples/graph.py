"""graph.py - the execution graph under the old profiler's names: layers, bricks and the kernels that they launch.

  $ python3 graph.py

What to copy: a scope for each layer; a kernel is recorded after the brick that launched it; each brick that waits for
another brick gets a dependency.
"""

import brick_agent as brick
from brick_agent import BrickId, ExecutionNode

profiler = brick.BrickProfiler.enabled("decode")
profiler.enable_graph()
source = profiler.graph_register_source("rmsnorm_kernel", ".visible .entry rmsnorm_kernel() { ret; }")
launches = (
    (BrickId.RmsNorm, 50_000, "rmsnorm_kernel", source, 16, 1024),
    (BrickId.QkvProjection, 200_000, "batched_q4k_gemv", None, 32, 4096),
    (BrickId.AttentionScore, 150_000, "incremental_attention", None, 8, 2048),
    (BrickId.GateProjection, 300_000, "batched_q6k_gemv", None, 64, 8192),
)
for layer in range(2):
    profiler.graph_push_scope(ExecutionNode.Layer(layer))
    for id, ns, kernel, ptx_hash, blocks, shared_mem in launches:
        timer = profiler.start_brick(id)
        profiler.stop_brick(timer, elements=4096)
        profiler.graph_record_brick(id, ns, elements=4096)
        profiler.graph_record_kernel(kernel, ptx_hash, (blocks, 1, 1), (256, 1, 1), shared_mem)
    profiler.graph_pop_scope()
print(f"balanced {profiler.graph_is_scope_balanced()}, source {source:016x}")
print(profiler.graph_to_ascii_tree())

profiler.graph_clear()
for id, ns, needed in (
    (BrickId.RmsNorm, 100_000, None),
    (BrickId.QkvProjection, 200_000, BrickId.RmsNorm),
    (BrickId.AttentionScore, 300_000, BrickId.QkvProjection),
    (BrickId.GateProjection, 400_000, BrickId.QkvProjection),
):
    profiler.graph_record_brick(id, ns)
    if needed is not None:
        profiler.graph_add_dependency(needed, id)
print(profiler.critical_path_summary(), end="")
