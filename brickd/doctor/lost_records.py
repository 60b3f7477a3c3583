"""Records that workers lost, and the settings that these workers need at their next start.

Owns: how the losses of many workers are combined into few findings. Must not know: the counters of losses. Invariants:
Lost spans are `broken`, lost details are `advice`. All findings have the same value for a setting. It is large enough
for all workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from brickd.base.units import plural
from brickd.doctor.check import CheckResult, State, fine
from brickd.doctor.container import Container, enlarged
from brickd.doctor.segments import Segments
from brickd.doctor.shared_memory import ShmFacts
from brickd.model.worker_names import as_argument
from brickd.shm.losses import Kind, Loss


def judge(segments: Segments, shm: ShmFacts, container: Container) -> list[CheckResult]:
    """Report each cause of loss once, with all workers that it affects."""
    causes: dict[Kind, list[tuple[str, Loss]]] = {}
    for worker in segments.workers:
        for loss in worker.losses:
            causes.setdefault(loss.kind, []).append((worker.name, loss))
    values = _largest(loss for cases in causes.values() for _, loss in cases)
    if not causes:
        return [fine("losses", f"none in {plural(len(segments.workers), 'segment')}", "everything recorded")]
    return [_loss(kind, cases, values, shm, container) for kind, cases in causes.items()]


def _loss(
    kind: Kind, cases: Sequence[tuple[str, Loss]], values: Mapping[str, int], shm: ShmFacts, container: Container
) -> CheckResult:
    name, loss = next((case for case in cases if case[1].settings), cases[0])
    spans = any(loss.spans for _, loss in cases)
    fix, why = f"brickd inspect {as_argument(name)}", "shows where records were lost"
    if loss.settings:
        own = _largest(loss for _, loss in cases)
        fix, why = " ".join(f"{name}={values[name]}" for name in own), "set this in the server's environment"
        if again := next((loss.again for _, loss in cases if loss.again), ""):
            why += f"; then run brickd doctor again: {again}"
    elif kind == "events":
        fix, why = "brickd up -d", "a daemon reads the events before the rings are full"
    elif kind == "tensors":
        why = "shows which tensors have a fingerprint; the worker's stderr says why one has none"
    elif kind in ("memory", "lane-memory"):
        fix = enlarged(container, 2 * shm.size_bytes)
        why = "or raise the memory limit of the server's control group"
    state: State = "broken" if spans else "advice"
    seen = f"{name}: {loss.text}" + (f"; and {plural(len(cases) - 1, 'more worker')}" if len(cases) > 1 else "")
    wanted = "every span recorded" if spans else "every detail recorded"
    return CheckResult(f"loss-{kind}", state, seen, wanted, fix, why, tuple(name for name, _ in cases))


def _largest(many: Iterable[Loss]) -> dict[str, int]:
    values: dict[str, int] = {}
    for loss in many:
        for setting in loss.settings:
            name, _, value = setting.partition("=")
            values[name] = max(values.get(name, 0), int(value))
    return values
