"""Real tensors and modules of torch: what the agent reads from them, without any change for the host.

Other tests check this with imitations of torch; the tests of this file need torch.
"""

from __future__ import annotations

import textwrap

import pytest
from faults import Start
from running import running
from verbs import document, started
from watched_weights import Left, left_by

from brickd.base.paths import runtime

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

TORCH = """
import torch, warnings
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(7)
warnings.simplefilter("ignore")
"""


def left(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return left_by(worker, prefix, TORCH + textwrap.dedent(source), **environment)


# ---- tensors -----------------------------------------------------------------------------------------------------


def test_torch_tensors_have_the_fingerprints_of_their_numbers(worker: Start, prefix: str) -> None:
    _, _, results, reported = left(
        worker,
        prefix,
        """
        brick.init()
        reported = []
        def agree(name, one, of=None):
            got = brick.fingerprint(one)
            plain = brick.fingerprint((one if of is None else of).detach().contiguous().numpy())
            if got != plain or got.dtype != str(one.dtype).split(".")[1]: reported.append([name, str(got), str(plain)])
        for kind in ("float64 float32 float16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool").split():
            one = (torch.randn(6, 7) * 9).abs().to(getattr(torch, kind))
            for view in (one, one.t(), one[::2, 1::3], one[1, 1], one[:0], one[:1].expand(4, 7), one[:, :1]):
                agree(kind, view)
        for kind, bits in (("bfloat16", torch.uint16), ("float8_e4m3fn", torch.uint8), ("float8_e5m2", torch.uint8)):
            one = torch.randn(6, 7).to(getattr(torch, kind))
            got = brick.fingerprint(one)
            if (got.l2, got.dtype) != (one.double().norm().item(), kind): reported.append([kind, str(got)])
        x = torch.randn(3, 4, requires_grad=True)
        agree("grad", x); agree("no leaf", x * 2); agree("parameter", nn.Parameter(x.detach()))
        with torch.inference_mode(): agree("inference", torch.randn(5))
        class Own(torch.Tensor): pass
        agree("own class", torch.randn(4).as_subclass(Own))
        """,
    )
    assert results == []
    assert reported == ""


def test_tensors_without_readable_numbers_are_refused_with_a_reason(worker: Start, prefix: str) -> None:
    _, _, results, reported = left(
        worker,
        prefix,
        """
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode(): fake = torch.randn(4)
        strange = {
            "complex": torch.zeros(2, dtype=torch.complex64), "e8m0": torch.zeros(2, dtype=torch.float8_e8m0fnu),
            "meta": torch.empty(4, device="meta"), "sparse": torch.eye(4).to_sparse(),
            "csr": torch.eye(4).to_sparse_csr(),
            "quantized": torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8), "fake": fake,
            "nested": torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]), "mkldnn": torch.eye(4).to_mkldnn(),
            "negated": torch.ones(4, dtype=torch.complex64).conj().imag, "lazy": nn.UninitializedParameter(),
            "jagged": torch.nested.nested_tensor([torch.randn(2)], layout=torch.jagged), "none": None, "list": [1.0],
        }
        reported = {}
        for name, one in strange.items():
            brick.checksum(name, one, input=one); brick.take(name, one); brick.weights({name: one})
            try: reported[name] = brick.fingerprint(one).checksum
            except Exception as error: reported[name] = str(error)
        """,
    )
    assert {name for name, why in results.items() if not why.startswith("brick_agent: ") or "\n" in why} <= {"lazy"}
    assert len(results) == 14
    assert results["meta"] == "brick_agent: Cannot pack tensors on meta"
    assert sum(line.startswith("brickd: a tensor has no checksum: ") for line in reported.splitlines()) == 1


def test_dispatch_modes_and_tracers_see_no_fingerprinting(worker: Start, prefix: str) -> None:
    _, _, reported, _ = left(
        worker,
        prefix,
        """
        from torch.profiler import profile
        from torch.utils._python_dispatch import TorchDispatchMode
        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                reported.append(str(function))
                return function(*args, **(kwargs or {}))
        class Model(nn.Module):
            def forward(self, x):
                y = torch.sin(x)
                brick.checksum("sin", y, input=brick.take("sin", x))
                return torch.cos(y)
        model, x, reported = Model(), torch.randn(3, 1), []
        wanted = torch.cos(torch.sin(x))
        with Seen(): brick.checksum("seen", x, input=[x])
        with profile() as seen: brick.checksum("seen", x, input=[x])
        reported += [each.key for each in seen.key_averages()]
        reported += [node.name for node in torch.fx.symbolic_trace(model).graph.nodes]
        reported += [node.name for node in torch.export.export(model, (x,)).graph.nodes]
        reported += [node.kind() for node in torch.jit.trace(model, x).graph.nodes()]
        reported += [torch.equal(model(x), wanted)]
        x.requires_grad_()
        model(x).sum().backward()
        reported += [torch.allclose(x.grad, -torch.sin(torch.sin(x)) * torch.cos(x))]
        """,
    )
    assert reported == ["x", "sin", "cos", "output", "x", "sin", "cos", "output", "aten::sin", "aten::cos", True, True]


def test_torch_function_overrides_see_no_fingerprinting(worker: Start, prefix: str) -> None:
    got, records, results, reported = left(
        worker,
        prefix,
        """
        from torch.overrides import TorchFunctionMode
        class Mode(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                reported.append(function.__name__)
                return function(*args, **(kwargs or {}))
        class Own(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                reported.append("own " + function.__name__)
                return super().__torch_function__(function, types, args, kwargs or {})
        model, x, negated = nn.Linear(3, 3), torch.ones(4), torch.ones(4, dtype=torch.complex64).conj().imag
        own, reported = x.as_subclass(Own), []
        def everything():
            brick.checksum("seen", own, input=[x, brick.take("seen", x), negated], valid=4)
            brick.weights({**dict(model._parameters), "own": own, "negated": negated})
            brick.weights(model)
        everything()
        with Mode():
            everything()
            reported.append("is it on?")
            x + 1
        own + 1
        """,
    )
    assert results == ["is it on?", "add", "own add"]
    assert (len(records), got.process["tensors_refused"]) == (2 * 3 + 2 * 2, 4)
    assert "(is_neg) has no fingerprint" in reported


def test_tensors_without_numbers_are_counted_silently(worker: Start, prefix: str) -> None:
    """While torch compiles a model, it runs the model with tensors that have no numbers.

    So such tensors are not an error.
    """
    got, records, results, reported = left(
        worker,
        prefix,
        """
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode() as mode: made = torch.randn(4)
        brick.checksum("k", made, input=made)
        with mode: brick.checksum("k", mode.from_tensor(torch.ones(4)), input=brick.take("k", made))
        class Model(nn.Module):
            def forward(self, x):
                y = torch.sin(x)
                brick.checksum("k", y, input=x)
                return y
        torch.export.export(Model(), (torch.ones(4),), strict=False)
        try: brick.fingerprint(made)
        except Exception as error: reported = str(error)
        """,
    )
    assert results == "brick_agent: a tensor without numbers (FakeTensor) has no fingerprint"
    assert (records, got.process["tensors_refused"]) == ([], 4 + 2)
    assert reported == ""


# ---- modules -----------------------------------------------------------------------------------------------------


def test_a_watched_model_can_be_converted_and_loaded_by_swapping_tensors(worker: Start, prefix: str) -> None:
    """torch swaps quantized and distributed tensors, and on request all tensors."""
    _, records, results, reported = left(
        worker,
        prefix,
        """
        from torch.testing._internal.two_tensor import TwoTensor
        other = nn.Linear(3, 3)
        other.weight = nn.Parameter(TwoTensor(torch.ones(3, 3), torch.ones(3, 3)))
        brick.weights(other)
        other.to(torch.float64)
        model = nn.Sequential(nn.Linear(3, 3))
        brick.weights(model, generation=5)
        torch.__future__.set_swap_module_params_on_conversion(True)
        model.load_state_dict(nn.Sequential(nn.Linear(3, 3)).state_dict())
        model.to(torch.bfloat16)
        brick.weights(model, generation=6)
        reported = [str(other.weight.dtype), [checksum(each.detach()) for each in model.parameters()]]
        """,
    )
    assert results[0] == "torch.float64"
    assert [each.checksum for each in records if each.generation == 6] == results[1]
    assert reported == ""


def test_assigned_weights_are_read_by_the_next_scan(worker: Start, prefix: str) -> None:
    _, records, results, reported = left(
        worker,
        prefix,
        """
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        brick.weights(model, rescan_s=1e-6, share=1)
        reported = [watched()]
        changed = {name: each + 1 for name, each in model.state_dict().items()}
        model.load_state_dict(changed, assign=True)
        before = scans()
        steps(lambda: scans() >= before + 2)
        reported += [watched(), {name: checksum(each) for name, each in changed.items()}]
        """,
    )
    assert results[:2] == [7, 7]
    last = {each.name.replace("*", str(each.layer)): each.checksum for each in records}
    assert last == results[2]
    assert reported == ""


@pytest.mark.ci
def test_a_compiled_model_has_the_weights_of_the_original(worker: Start, prefix: str) -> None:
    _, records, _, reported = left(
        worker,
        prefix,
        """
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        brick.weights(model, generation=1)
        model[1] = torch.compile(model[1])
        brick.weights(torch.compile(model), generation=2)
        """,
    )
    before, after = ([each[:3] + each[5:6] for each in records if each.generation == n] for n in (1, 2))
    assert before == after
    assert (len(before), reported) == (4, "")


# ---- results -----------------------------------------------------------------------------------------------------

LINEAR = """
# A sum of this many elements is split among threads on every processor; a matrix product is not.
weight = torch.randn(18, 1 << 16)
rows = [torch.randn(18) for _ in range(12)]
torch.set_num_threads(THREADS)
for number, x in enumerate(rows):
    y = torch.stack([(weight[i] * x[i]).sum() for i in range(18)])
    if number == BAD: y[17] = -y[17]
    brick.checksum("linear", y, input=x)
pause()
"""


@pytest.mark.parametrize(("bad", "code", "verdict"), [(-1, 0, "within"), (7, 1, "diverged")])
def test_another_number_of_threads_is_another_numeric_class_and_hides_no_damage(
    worker: Start, prefix: str, bad: int, code: int, verdict: str
) -> None:
    key = str(runtime().directory / "key")
    for number, (threads, wrong) in enumerate([(1, -1), (4, bad)]):
        program = f"THREADS, BAD = {threads}, {wrong}\n{TORCH}{LINEAR}"
        started(worker, program, BRICKD_SERVICE="api", BRICKD_WORKER=str(number), BRICKD_KEY_FILE=key)
    answer = document("diff", "api", code=code)
    assert (answer["verdict"], answer["diverged"], answer["within"] + answer["identical"]) == (verdict, code, 12 - code)
    assert answer["within"] > 6
    with running() as daemon:
        result = daemon.once("/coverage", lambda answer: answer["services"][0]["input"]["fingerprints"] == 24)
    assert [(site["state"], len(site["numeric_classes"])) for site in result["sites"]] == [
        ("differs" if code else "compared", 2)
    ]
    assert len(result["findings"]) == code
