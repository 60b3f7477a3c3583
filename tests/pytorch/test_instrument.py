"""An instrumented torch model behaves as before, and records without a change to its code.

These tests are skipped if torch is not installed.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any

import pytest
from checksums import Left, recorded
from conftest import readings
from faults import Start
from recorded import is_of_rows, summaries

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
def held(of): return {name: list(vars(each).items()) for name, each in of.named_modules()}
def changed(of, before):
    same = {name: [(key, id(one)) for key, one in each] for name, each in before.items()}
    return sorted(name for name, each in held(of).items() if [(key, id(one)) for key, one in each] != same[name])
"""


def left(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return recorded(worker, prefix, MODEL + textwrap.dedent(source), **environment)


def kernels(of: Left) -> dict[tuple[str, int], int]:
    """Return the number of fingerprints of whole tensors at each site."""
    return dict(Counter(place(of, each) for each in of.events if each["kind"] == "checked" and not is_of_rows(each)))


def place(of: Left, record: dict[str, Any]) -> tuple[str, int]:
    site = of.sites[record["site"]]
    assert site is not None
    kernel, layer, _ = site
    return kernel, layer


def test_parts_are_spans_below_a_step_and_their_tensors_have_checksums(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        "brick.instrument(model, watch_weights=False)\nreported = [torch.equal(model(x), plain) for _ in range(2)]",
        BRICKD_FINGERPRINTS="all",
    )
    assert got.reported == [True, True]
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


def test_by_default_one_step_of_64_is_recorded(worker: Start, prefix: str) -> None:
    got = left(worker, prefix, "brick.instrument(model, watch_weights=False)\nfor n in range(640): model(x + n)")
    assert 0 < len(kernels(got)) == 7
    assert set(kernels(got).values()) <= set(range(1, 29))


def test_removing_instrumentation_restores_the_model(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        class Own(nn.Linear):  # a module with its own __getstate__
            def __getstate__(self): return self.__dict__
        model.head = Own(16, 4)
        vars(model.layers[0])["_call_impl"] = model.layers[0]._call_impl
        model.layers[1].register_forward_hook(lambda *_: None)
        before, state, packed = held(model), list(model.state_dict()), copy.deepcopy(vars(model.head))
        brick.instrument(model, only=["*"]); brick.instrument(model)
        during = changed(model, before)
        copy.deepcopy(model); vars(copy.copy(model.head)); model(x)
        still = changed(model, before)
        brick.uninstrument(model); brick.uninstrument(model)
        reported = [during, still, changed(model, before), state == list(model.state_dict())]
        """,
    )
    layers = [f"layers.{n}{part}" for n in range(3) for part in ("", ".mlp", ".mlp.0", ".mlp.2", ".norm")]
    assert got.reported == [sorted(["", "head", *layers])] * 2 + [[], True]


COPIES = """
import __main__, io, weakref; __main__.Model, __main__.Block = Model, Block
for each in (Model, Block): each.__module__ = "__main__"
def keys(of): return [list(vars(each)) for each in of.modules()]
"""


def test_copies_and_pickles_are_not_instrumented(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        COPIES
        + """
def saved(of):
    file = io.BytesIO(); torch.save(of, file); file.seek(0)
    return torch.load(file, weights_only=False)
was, pickled = keys(model), pickle.dumps(model)
brick.instrument(model)
reported = [pickle.dumps(model) == pickled]
twice = copy.deepcopy(copy.deepcopy(model))
for each in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved(model), twice):
    reported.append(keys(each) == was)
    each.head.weight.data.zero_(); each.head.bias.data.fill_(7)
    reported.append(bool((each(x) == 7).all()))
one = copy.copy(model.head)  # it shares the tables of what it is a copy of, until it is given its own
one._parameters = {"weight": torch.zeros(4, 16), "bias": torch.full((4,), 7.0)}
reported += ["_call_impl" not in vars(one), bool((one(torch.ones(2, 16)) == 7).all())]
traced = torch.fx.symbolic_trace(model)  # it packs itself what it holds
brick.instrument(traced)
for each in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
    each.head.weight.data.zero_(); each.head.bias.data.fill_(7)
    reported.append(bool((each(x) == 7).all()))
reported.append(torch.equal(model(x), plain))
""",
    )
    assert got.reported == [True] * 14


def test_a_replica_computes_with_its_own_weights(worker: Start, prefix: str) -> None:
    # Copies the model as torch's DataParallel does after a first call; DataParallel itself needs several devices.
    got = left(
        worker,
        prefix,
        COPIES
        + """
def replica(of):
    made = of._replicate_for_data_parallel()
    for name, each in of._parameters.items(): setattr(made, name, torch.zeros_like(each) if name == "weight" else each)
    made._modules = {name: replica(each) for name, each in of._modules.items()}
    return made
wanted, was = replica(model)(x), keys(replica(model))
brick.instrument(model)
reported = [torch.equal(replica(model)(x), wanted), not torch.equal(wanted, plain), keys(replica(model)) == was]
""",
    )
    assert got.reported == [True] * 3


def test_a_host_can_read_keep_and_replace_its_forward(worker: Start, prefix: str) -> None:
    """The method that replaces `forward` is timed."""
    got = left(
        worker,
        prefix,
        """
        import functools, weakref
        one = Model().eval(); one.load_state_dict(model.state_dict())
        brick.instrument(one)
        reported = [type(one.forward) is type(model.forward), "forward" not in vars(one)]
        reported += [torch.equal(one.forward(x), plain)]
        reported += [weakref.WeakMethod(one.forward)() == one.forward, functools.partial(one.forward, x)().equal(plain)]
        kept, seen, table = one.forward, weakref.ref(one), weakref.WeakKeyDictionary({one: 1})
        del one
        reported += [seen() is not None, torch.equal(kept(x), plain)]
        del kept
        reported += [seen() is None, len(table) == 0]

        brick.instrument(model, watch_weights=False)
        mlp = model.layers[0].mlp
        before, mlp.forward = mlp.forward, lambda x: 2 * before(x)
        changed = model(x)
        reported.append(not torch.equal(changed, plain))
        brick.uninstrument(model)
        reported.append(torch.equal(model(x), changed))
        brick.instrument(model, watch_weights=False)
        reported.append(torch.equal(model(x), changed))
        del mlp.forward
        reported.append(torch.equal(model(x), plain))
        class Doubled(nn.Sequential):
            def forward(self, x): return 2 * super().forward(x)
        mlp.__class__ = Doubled
        reported.append(torch.equal(model(x), changed))
        mlp.__class__ = nn.Sequential
        whole, Model.forward = Model.forward, lambda self, x: whole(self, x) + 1
        reported.append(torch.equal(model(x), plain + 1))
        """,
    )
    assert got.reported == [True] * 15
    assert {path: row["count"] for path, row in summaries(got.reading).items()}[("forward",)] == 5


def test_a_forked_process_continues_in_its_own_segment(worker: Start, prefix: str) -> None:
    process = worker(
        MODEL
        + textwrap.dedent(
            """
            brick.instrument(model, watch_weights=False)
            for _ in range(2): model(x)
            come, came = os.pipe(); go, goes = os.pipe()
            if os.fork() == 0:
                equal = [torch.equal(model(x), plain) for _ in range(3)]
                os.write(came, bytes(equal)); os.close(goes); os.read(go, 1); os._exit(0)
            equal = list(os.read(come, 3))
            model(x)
            report([equal, os.getpid()]); pause()
            os.close(goes); report(os.wait()[1])
            """
        )
    )
    reported, pid = process.next_report()
    process.paused()
    counted = {each.pid == pid: summaries(each)[("forward",)]["count"] for each in readings(prefix)}
    process.go()
    assert process.next_report() == 0
    assert process.end() == 0, process.stderr
    assert reported == [1] * 3
    assert counted == {True: 3, False: 3}


def test_instrumenting_changes_no_exception_and_no_result(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        class Odd(nn.Module):
            def __init__(self): super().__init__(); self.inner = nn.Linear(2, 2); self.returned = None
            def forward(self, *args, **keywords):
                if isinstance(self.returned, Exception): raise self.returned
                return self.returned
        reported = []
        for returned in (None, 3, "text", [], {"a": None}, ValueError("its own")):
            model = nn.ModuleDict({"odd": Odd()})
            odd = model["odd"]; odd.returned = returned
            brick.instrument(odd)
            try: reported.append(odd() is returned)
            except ValueError as error: reported.append(error is returned and error.__context__ is None)
        """,
        BRICKD_FINGERPRINTS="all",
    )
    assert got.reported == [True] * 6


def test_instrumenting_does_not_change_the_graphs_of_torch_compile(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        import torch._dynamo as dynamo
        def graphs():
            dynamo.reset()
            reported = dynamo.explain(model)(x)
            return [reported.graph_count, reported.graph_break_count, len(reported.graphs[0].graph.nodes)]
        before = graphs()
        brick.instrument(model)
        reported = [before, graphs()]
        """,
    )
    assert got.reported[0] == got.reported[1]
    assert got.reported[0][:2] == [1, 0]


@pytest.mark.parametrize(
    "compiled",
    [
        "torch.compile(model, backend='eager')",
        pytest.param("(model.compile(backend='eager'), model)[1]", marks=pytest.mark.ci),
    ],
)
def test_a_compiled_module_is_timed_where_it_is_called(worker: Start, prefix: str, compiled: str) -> None:
    got = left(
        worker,
        prefix,
        f"""
        whole = {compiled}
        brick.instrument(whole)
        reported = [torch.equal(whole(x), plain), torch.equal(whole(x), plain)]
        brick.uninstrument(whole)
        reported.append(torch.equal(whole(x), plain))
        """,
    )
    assert got.reported == [True] * 3
    assert {path: row["count"] for path, row in summaries(got.reading).items()} == {
        ("forward",): 2,
        ("forward", "Model"): 2,
    }


@pytest.mark.ci
def test_parts_inside_a_compiled_module_are_marked_closed(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        for n, each in enumerate(model.layers): model.layers[n] = torch.compile(each, backend="eager")
        brick.instrument(model, watch_weights=False)
        reported = torch.equal(model(x), plain)
        """,
        BRICKD_FINGERPRINTS="all",
    )
    assert got.reported
    assert kernels(got) == {("head", -1): 1} | {("layers.*", n): 1 for n in range(3)}
    closed = {(got.reading.name(site.name), site.layer) for site in got.reading.sites
              if site is not None and got.reading.category(site.name) == "closed"}  # fmt: skip
    assert closed == {("layers.*.mlp", n) for n in range(3)}


CONTEXT = """
model.config = type("Config", (), {"_attn_implementation": "sdpa"})()
model.layers[0].mlp.compile(backend="eager")
brick.instrument(model, watch_weights=False)
model(x); model.config._attn_implementation = "eager"; torch.set_float32_matmul_precision("high"); model(x + 1)
"""


def test_the_numeric_context_is_recorded_at_the_time_of_the_call(worker: Start, prefix: str) -> None:
    got = left(worker, prefix, CONTEXT + "reported = torch.__version__", BRICKD_FINGERPRINTS="all")
    reported: dict[str, set[str]] = {"head": set(), "layers.*": set()}
    for each in got.events:
        if each["kind"] == "checked" and not is_of_rows(each):
            reported.setdefault(place(got, each)[0], set()).add(got.reading.name(each["backend"]))
    versions = f"1 threads, torch {got.reported}"
    assert reported["head"] == {f"eager, sdpa, {versions}", f"eager, eager, high precision, {versions}"}
    assert {each.partition(",")[0] for each in reported["layers.*"]} == {"compiled", "eager"}
    first = next(each for each in got.events if each["kind"] == "checked" and not is_of_rows(each))
    assert first["output"]["shape"][: first["output"]["dims"]] == (2, 16)
    row = summaries(got.reading)[("forward",)]
    assert (row["count"], row["elements"], row["bytes"]) == (2, 4, 0)  # the rows of both calls count


def test_instrumenting_keeps_signatures(worker: Start, prefix: str) -> None:
    source = """
    def shown(): return [str(inspect.signature(each.forward)) for each in (model, model.layers[0])]
    before = shown()
    brick.instrument(model)
    reported = [before, shown(), model.forward.__doc__ == Model.forward.__doc__]
    """
    reported: Any = left(worker, prefix, source).reported
    assert reported[0] == reported[1] == ["(x)", "(x, scale: 'float' = 1.0)"]


def test_unreadable_arguments_are_reported_once_and_computed_normally(worker: Start, prefix: str) -> None:
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
    assert process.next_report() == [True] * 3
    assert process.end() == 0
    assert process.stderr == "brickd: the inputs of inner are not recorded: strange\n"


FAMILIES = """
import os
os.environ["HF_HUB_OFFLINE"], os.environ["TRANSFORMERS_VERBOSITY"] = "1", "error"
import torch, transformers
from brick_agent._torch import module_selection
torch.set_num_threads(1)
small = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1)
families = {
    "Llama": small,
    "Qwen2": small,
    "Qwen3Moe": small | dict(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
    "Mixtral": small | dict(num_local_experts=4),
    "GPT2": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=2),
}
reported = {}
for family, config in families.items():
    kind = getattr(transformers, "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")
    model = kind(getattr(transformers, f"{family}Config")(**config)).eval()
    given = torch.arange(6).reshape(1, 6)
    with torch.inference_mode():
        plain = model(given).logits
        brick.instrument(model)
        same = torch.equal(model(given).logits, plain)
        model.generate(given, max_new_tokens=2, do_sample=False, pad_token_id=0)
    names = sorted({f"{part.name} {part.category}" for part in module_selection.chosen(model, 64)})
    reported[family] = [same, names]
report(reported)
"""


@pytest.mark.slow
def test_model_families_are_instrumented_alike_and_compute_the_same(worker: Start, prefix: str) -> None:
    pytest.importorskip("transformers", reason="transformers are not installed: .venv/bin/pip install '.[torch]'")

    def wanted(layers: str, attention: str, whole: str) -> list[bool | list[str]]:
        parts = [f"{layers}.{attention} attention", f"{layers}.mlp ffn", f"{layers} None"]
        return [True, sorted([*parts, "lm_head None", f"{whole} None"])]

    process = worker(FAMILIES, BRICKD_FINGERPRINTS="all")
    found = process.next_report()
    assert found.pop("GPT2") == wanted("transformer.h.*", "attn", "transformer")
    assert found == dict.fromkeys(("Llama", "Qwen2", "Qwen3Moe", "Mixtral"), wanted("layers.*", "self_attn", "model"))
    assert process.end() == 0, process.stderr
