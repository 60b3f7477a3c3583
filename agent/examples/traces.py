"""traces.py - compares two runs of the same kernels: finds the first difference and its origin.

$ python3 traces.py
"""

import copy
from array import array

from brick_agent import KernelTrace, TraceRun


def forward(run, scale):
    """Trace three kernels; one kernel multiplies by `scale`."""
    x = array("f", [1, 2, 3])
    for layer, (kernel, by) in enumerate((("norm", 0.5), ("rope", scale), ("mlp", 4.0))):
        trace = KernelTrace(kernel, layer, 17, run.run_id).with_input_checksum(x)
        x = array("f", [each * by for each in x])
        run.add_trace(trace.with_output_checksum(x).with_time_us(12.5))


cpu, cuda = TraceRun("cpu"), TraceRun("cuda")
forward(cpu, 2.0)
forward(cuda, 2.5)
report = cuda.compare_and_mark(TraceRun.from_json(cpu.to_json()))
print(f"{report.verdict}: {report.first_divergent_kernel}, {report.divergences[0].blame}")
print(f"compared {report.kernels_compared}, differ {len(report.divergences)}, diverged {cuda.is_diverged()}")
print(f"expected {report.expected_trace.output_checksum}, actual {report.actual_trace.output_checksum}")
print(f"FNV-1a {report.expected_trace.fnv1a}, {report.actual_trace.fnv1a}")
print(report.diagnosis)
print(copy.deepcopy(cuda))
