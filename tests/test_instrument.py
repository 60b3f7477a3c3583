"""An instrumented torch model is what it was; the rest is seen from outside.

What torch does itself only torch can show: where nobody has installed it these are skipped.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from checksums import Left, recorded
from faults import Start
from recorded import summaries

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

MODEL = """
import torch, warnings, copy, pickle, inspect
from torch import nn
warnings.simplefilter("ignore")
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    def forward(self, x, scale: float = 1.0):
        return x + scale * self.mlp(self.norm(x))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 4)
    def forward(self, x):
        for each in self.layers: x = each(x)
        return self.head(x)
torch.manual_seed(3)
model = Model().eval()
x = torch.randn(2, 16)
plain = model(x)
def forwards(of): return sorted(name for name, each in of.named_modules() if "forward" in vars(each))
"""


def left(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return recorded(worker, prefix, MODEL + textwrap.dedent(source), **environment)


def kernels(of: Left) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for each in of.events:
        if each["kind"] == "checked" and "tensors" in each and (site := of.sites[each["site"]]) is not None:
            found[site[:2]] = found.get(site[:2], 0) + 1
    return found


def test_parts_are_spans_below_a_step_and_their_tensors_checksums(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        "brick.instrument(model, watch_weights=False)\ntold = [torch.equal(model(x), plain) for _ in range(2)]",
        BRICKD_FINGERPRINTS="all",
    )
    assert got.told == [True, True]
    counted = {path: row["count"] for path, row in summaries(got.reading).items()}
    layers = [f"layers.*[{n}]" for n in range(3)]
    below = [("head",), *((each,) for each in layers), *((each, each.replace("*", "*.mlp")) for each in layers)]
    assert counted == dict.fromkeys([("forward",), *(("forward", *path) for path in below)], 2)
    wanted = {(name, n): 2 for name in ("layers.*", "layers.*.mlp") for n in range(3)}
    assert kernels(got) == wanted | {("head", -1): 2}


def test_the_same_input_is_the_same_step_in_every_process(worker: Start, prefix: str) -> None:
    source = "brick.instrument(model, watch_weights=False)\nfor each in (x, x + 1): model(each)"
    steps = [
        [each["step"] for each in left(worker, f"{prefix}{n}", source, BRICKD_SHM_PREFIX=f"{prefix}{n}",
                                       BRICKD_FINGERPRINTS="all").events]
        for n in range(2)
    ]  # fmt: skip
    assert steps[0] == steps[1]
    assert len(set(steps[0])) == 2


def test_by_default_one_step_of_64_is_looked_at(worker: Start, prefix: str) -> None:
    got = left(worker, prefix, "brick.instrument(model, watch_weights=False)\nfor n in range(640): model(x + n)")
    assert 0 < len(kernels(got)) == 7
    assert set(kernels(got).values()) <= set(range(2, 25))


def test_uninstrumented_it_is_as_it_was(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        before = forwards(model)
        brick.instrument(model); brick.instrument(model)
        during = forwards(model)
        brick.uninstrument(model); brick.uninstrument(model)
        told = [before, during, forwards(model)]
        """,
    )
    layers = [f"layers.{n}{part}" for n in range(3) for part in ("", ".mlp")]
    assert got.told == [[], sorted(["", "head", *layers]), []]


def test_copies_and_pickles_work_and_are_bound_to_themselves(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        import __main__; __main__.Model, __main__.Block = Model, Block
        for each in (Model, Block): each.__module__ = "__main__"
        brick.instrument(model)
        made = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(copy.deepcopy(model))]
        for each in made: each.head.weight.data.zero_(); each.head.bias.data.fill_(7)
        told = [[each.forward.__self__ is each, each.layers[1].mlp.forward.__self__ is each.layers[1].mlp,
                 bool((each(x) == 7).all())] for each in made]
        told.append(torch.equal(model(x), plain))
        """,
    )
    assert got.told == [[True, True, True]] * 3 + [True]


def test_what_it_raises_and_returns_is_what_it_was(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        class Odd(nn.Module):
            def __init__(self): super().__init__(); self.inner = nn.Linear(2, 2); self.says = None
            def forward(self, *args, **keywords):
                if isinstance(self.says, Exception): raise self.says
                return self.says
        told = []
        for says in (None, 3, "text", [], {"a": None}, ValueError("its own")):
            model = nn.ModuleDict({"odd": Odd()})
            odd = model["odd"]; odd.says = says
            brick.instrument(odd)
            try: told.append(odd() is says)
            except ValueError as error: told.append(error is says and error.__context__ is None)
        """,
        BRICKD_FINGERPRINTS="all",
    )
    assert got.told == [True] * 6


def test_the_graphs_of_torch_compile_are_as_they_were(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        import torch._dynamo as dynamo
        def graphs():
            dynamo.reset()
            told = dynamo.explain(model)(x)
            return [told.graph_count, told.graph_break_count, len(told.graphs[0].graph.nodes)]
        before = graphs()
        brick.instrument(model)
        told = [before, graphs()]
        """,
    )
    assert got.told[0] == got.told[1]
    assert got.told[0][:2] == [1, 0]


@pytest.mark.parametrize(
    "compiled", ["torch.compile(model, backend='eager')", "(model.compile(backend='eager'), model)[1]"]
)
def test_what_is_compiled_is_timed_where_it_is_called(worker: Start, prefix: str, compiled: str) -> None:
    got = left(
        worker,
        prefix,
        f"""
        whole = {compiled}
        brick.instrument(whole)
        told = [torch.equal(whole(x), plain), torch.equal(whole(x), plain)]
        brick.uninstrument(whole)
        told.append(torch.equal(whole(x), plain))
        """,
    )
    assert got.told == [True] * 3
    assert {path: row["count"] for path, row in summaries(got.reading).items()} == {
        ("forward",): 2,
        ("forward", "Model"): 2,
    }


def test_a_signature_is_what_it_was(worker: Start, prefix: str) -> None:
    source = """
    def shown(): return [str(inspect.signature(each.forward)) for each in (model, model.layers[0])]
    before = shown()
    brick.instrument(model)
    told = [before, shown(), model.forward.__doc__ == Model.forward.__doc__]
    """
    told: Any = left(worker, prefix, source).told
    assert told[0] == told[1] == ["(x)", "(x, scale: 'float' = 1.0)"]


def test_what_cannot_be_looked_at_is_told_once_and_computed_as_it_was(worker: Start, prefix: str) -> None:
    process = worker(
        MODEL
        + textwrap.dedent(
            """
            class Strange(dict):
                def items(self): raise ValueError("strange")
            class Inner(nn.Linear):
                def forward(self, x, more): return super().forward(x)
            class Outer(nn.Module):
                def __init__(self): super().__init__(); self.inner = Inner(16, 16)
                def forward(self, x): return self.inner(x, Strange())
            model = Outer().eval()
            plain = model(x)
            brick.instrument(model, only="inner", watch_weights=False)
            report([torch.equal(model(x), plain) for _ in range(3)])
            """
        ),
        BRICKD_FINGERPRINTS="all",
    )
    assert process.heard() == [True] * 3
    assert process.end() == 0
    assert process.said == "brickd: what inner was given is not recorded: strange\n"
