"""The first model that a process calls is found, however it is called. Before that, hooks do nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest
from checksums import recorded
from conftest import readings
from faults import Start
from recorded import summaries
from running import BRICKD
from test_instrument import MODEL

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

HOOKED = """
from brick_agent._torch import autoload
autoload.begin()
"""
LEFT = """
hooks = torch.nn.modules.module._global_forward_pre_hooks
reported = [len(hooks), nn.Module.compile.__module__, autoload.__name__ in str(vars(model))]
"""
ALL = {("forward",): 2, ("forward", "head"): 2} | {
    path: 2
    for n in range(3)
    for path in (("forward", f"layers.*[{n}]"), ("forward", f"layers.*[{n}]", f"layers.*.mlp[{n}]"))
}
WHOLE = {("forward",): 2, ("forward", "Model"): 2}


def counted(worker: Start, prefix: str, source: str) -> dict[tuple[str, ...], int]:
    program = MODEL + HOOKED + textwrap.dedent(source) + LEFT
    got = recorded(worker, prefix, program)
    assert got.reported == [0, "torch.nn.modules.module", False]
    return {path: row["count"] for path, row in summaries(got.reading).items()}


def test_a_model_is_found_by_its_first_call(worker: Start, prefix: str) -> None:
    # A single operator is not a model. In the first call, only the parts are timed, without a step.
    found = counted(worker, prefix, "nn.Linear(2, 2)(torch.ones(2))\nfor _ in range(3): model(x)")
    assert found == ALL | {path[1:]: 1 for path in ALL if len(path) > 1}


def test_a_model_called_only_by_forward_is_found(worker: Start, prefix: str) -> None:
    # The program calls `forward` of the whole model directly, so the parts are timed without a step. When brickd finds
    # the model, the first layer is already running.
    found = counted(worker, prefix, "for _ in range(3): assert torch.equal(model.forward(x), plain)")
    first = "layers.*[0]", "layers.*.mlp[0]"
    assert found == {path[1:]: 3 for path in ALL if len(path) > 1} | {first[:1]: 2, first: 2, first[1:]: 1}


@pytest.mark.ci
def test_a_model_compiled_as_a_whole_is_found(worker: Start, prefix: str) -> None:
    source = """
    graphs = []
    def backend(graph, given):
        graphs.append(len(graph.graph.nodes)); return graph
    model.compile(backend=backend)
    assert torch.equal(model(x), plain) and torch.equal(model(x), plain)
    assert graphs == [len(torch._dynamo.explain(Model().eval())(x).graphs[0].graph.nodes)], graphs
    """
    assert counted(worker, prefix, source) == WHOLE


def test_a_model_with_compiled_layers_is_found_and_its_layers_are_timed(worker: Start, prefix: str) -> None:
    source = """
    for each in model.layers: each.compile(backend="eager", fullgraph=True)
    for _ in range(3): assert torch.equal(model(x), plain)
    """
    found = counted(worker, prefix, source)
    assert {path[-1] for path in found} == {"forward", "head", *(f"layers.*[{n}]" for n in range(3))}


def test_several_threads_that_call_a_model_at_once_find_it_once(worker: Start, prefix: str) -> None:
    source = """
    import threading
    sys.setswitchinterval(1e-6)
    barrier, wrong = threading.Barrier(8), []
    def call():
        barrier.wait()
        try: assert torch.equal(model(x), plain)
        except BaseException as error: wrong.append(repr(error))
    threads = [threading.Thread(target=call) for _ in range(8)]
    for each in threads: each.start()
    for each in threads: each.join()
    assert wrong == []
    """
    counted(worker, prefix, source)


def test_a_model_whose_parts_are_called_by_an_engine_has_its_steps(worker: Start, prefix: str) -> None:
    source = """
    class Whole(nn.Module):
        def __init__(self):
            super().__init__(); self.model = Model(); self.lm_head = nn.Linear(4, 2)
        def forward(self, x): return self.lm_head(self.model(x))
    whole = Whole()
    brick.instrument(whole)
    for _ in range(2): whole.lm_head(whole.model(x))
    """
    found = recorded(worker, prefix, MODEL + textwrap.dedent(source))
    paths = {path: row["count"] for path, row in summaries(found.reading).items()}
    assert paths[("forward",)] == 2
    assert paths[("forward", "model", "layers.*[1]", "layers.*.mlp[1]")] == 2
    assert paths[("lm_head",)] == 2


@pytest.mark.parametrize(
    ("environment", "index"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1"}, 3),
        pytest.param({"RANK": "3"}, -1, marks=pytest.mark.ci),
        pytest.param({"RANK": "three", "LOCAL_RANK": "1"}, -1, marks=pytest.mark.ci),
        pytest.param({"RANK": "3", "LOCAL_RANK": "1", "BRICKD_WORKER": "5"}, 5, marks=pytest.mark.ci),
    ],
)
def test_the_rank_of_a_process_is_its_index(
    worker: Start, prefix: str, environment: dict[str, str], index: int
) -> None:
    found = recorded(worker, prefix, MODEL + HOOKED + "model(x)", **environment)
    assert found.reading.header["index"] == index


def test_the_rank_does_not_rename_a_worker_that_the_host_has_named(worker: Start, prefix: str) -> None:
    found = recorded(worker, prefix, MODEL + HOOKED + "brick.init(worker=7); model(x)", RANK="3", LOCAL_RANK="1")
    assert found.reading.header["index"] == 7
    assert sum(lane["amounts"] for _, lane, _ in found.reading.lanes) == 0, "no wrong argument was counted"


STOPPED = """
import signal
import subprocess
import sys
report(None)
pause()
signal.raise_signal(signal.{signal})
report(None)
pause()
"""


def test_a_process_that_ends_itself_by_a_signal_has_ended_normally(worker: Start, prefix: str) -> None:
    process = worker(MODEL + HOOKED + "model(x)" + STOPPED.format(signal="SIGTERM"))
    process.next_report()
    process.paused()
    assert len(readings(prefix)) == 1
    process.go()
    assert process.end() == -signal.SIGTERM
    assert readings(prefix) == [], "the segment is removed, as of every worker that ends without a daemon"


def test_handled_signals_and_fault_signals_are_no_normal_end(worker: Start, prefix: str) -> None:
    handled = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
    process = worker(MODEL + HOOKED + "model(x)\n" + handled + STOPPED.format(signal="SIGTERM") + "model(x)\npause()")
    process.next_report()
    process.paused()
    process.go()
    process.next_report()
    process.paused()
    process.go()
    process.paused()
    assert [each.alive for each in readings(prefix)] == [True]
    process.go()
    assert process.end() == 0
    process = worker(MODEL + HOOKED + "model(x)\n" + STOPPED.format(signal="SIGABRT"))
    process.next_report()
    process.paused()
    process.go()
    assert process.end() == -signal.SIGABRT
    assert [(each.alive, each.ended) for each in readings(prefix)] == [(False, False)]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("torch.nn.Linear(4, 4)(torch.zeros(1, 4))", "it called no torch model that has parts and parameters; call"),
        ("torch.nn.Sequential(torch.nn.Linear(4, 4))(torch.zeros(1, 4))", ""),
    ],
)
@pytest.mark.usefixtures("prefix")
def test_a_program_that_calls_no_model_prints_one_line_at_its_end(source: str, text: str) -> None:
    command = [*BRICKD, "run", "--", sys.executable, "-c", f"import torch; {source}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ("nothing was recorded" in ended.stderr, text in ended.stderr) == (text != "", True)
