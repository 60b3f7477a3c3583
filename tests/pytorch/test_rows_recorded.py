"""Rows of the row-wise parts of a torch model are recorded, and the model computes as before.

These tests are skipped if torch is not installed.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from checksums import Left, lost, recorded, recorded_in
from epochs import EPOCH
from faults import Start
from recorded import is_of_rows
from test_instrument import MODEL, kernels, place

from brickd.model.row_calls import RowCalls, row_calls
from brickd.model.workers import Worker
from brickd.shm._reader import SITE_PRESUMED, UNIT_ROWS
from brickd.shm.ledger import ledger_of

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

MORE = """
class LlamaRMSNorm(nn.Module):
    def __init__(self, size): super().__init__(); self.weight = nn.Parameter(torch.ones(size))
    def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
def sums(tensor): return fingerprint_fields(brick.fingerprint(tensor, key=key()))[0]
"""
Place = tuple[str, int]


def left(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    environment = {"BRICKD_FINGERPRINTS": "all"} | environment
    return recorded(worker, prefix, MODEL + MORE + textwrap.dedent(source), **environment)


def rows(of: Left) -> dict[Place, list[dict[str, Any]]]:
    """Return the records of rows at each site."""
    found: dict[Place, list[dict[str, Any]]] = {}
    for each in of.events:
        if each["kind"] == "checked" and is_of_rows(each):
            found.setdefault(place(of, each), []).append(each)
    return found


def calls(of: Left) -> RowCalls:
    """Return the number of calls that the agent examined for rows."""
    return row_calls([Worker("api/0", of.reading, ledger_of(of.reading))])


def unknown(of: Left) -> dict[str, dict[Place, int]]:
    """Return the number of calls without rows, keyed by reason and site."""
    return {why: {(name, layer): n for (name, layer), n in sites.items()} for why, sites in calls(of).unknown.items()}


def names(of: Left) -> set[str]:
    return {name for name, _ in rows(of)}


def test_each_row_wise_part_of_each_layer_is_recorded_and_outputs_are_the_same(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        x = torch.randn(2, 5, 16)
        plain = model(x)
        seen = {}
        def note(name): return lambda module, given, result: seen.__setitem__(name, (given[0], result))
        for name, each in model.named_modules(): each.register_forward_hook(note(name))
        brick.instrument(model, watch_weights=False)
        same = torch.equal(model(x), plain)
        numbers = {name: [[sums(row) for row in tensor.detach().reshape(-1, tensor.shape[-1])] for tensor in both]
                   for name, both in seen.items()}
        reported = [same, numbers]
        """,
    )
    same, numbers = got.reported
    assert same
    inside = "norm", "mlp", "mlp.0", "mlp.2"
    parts = {(f"layers.*.{part}", n): f"layers.{n}.{part}" for n in range(3) for part in inside}
    parts["head", -1] = "head"
    found = rows(got)
    assert found.keys() == parts.keys()
    for site, (record,) in found.items():
        given, result = numbers[parts[site]]
        tensors = [f"{tensor['checksum']:016x}" for tensor in record["tensors"]]
        pairs = list(zip(tensors[::2], tensors[1::2], strict=True))
        assert len(pairs) == 4
        assert set(pairs) <= set(zip(result, given, strict=True)), site
        assert record["position"] == 10
        assert record["step"] == got.events[0]["step"] != 0
    assert set(kernels(got).values()) == {1}, "whole tensors are recorded as before"


def test_by_default_rows_of_one_step_in_eight_are_recorded(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        "brick.instrument(model, watch_weights=False)\nfor n in range(320): model(x + n)",
        BRICKD_FINGERPRINTS="",
        BRICKD_EVENTS="65536",
    )
    counts = {site: len(records) for site, records in rows(got).items()}
    assert set(counts.values()) <= set(range(20, 61))
    assert len(counts) == 13
    steps = {each["step"] for each in rows(got)["head", -1]}
    whole = {each["step"] for each in got.events if each["kind"] == "checked" and not is_of_rows(each)}
    assert whole < steps


def test_rows_have_the_backend_of_the_call(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        brick.instrument(model, watch_weights=False)
        model(x); torch.set_float32_matmul_precision("high"); torch.set_num_threads(2); model(x + 1)
        again = Model().eval(); brick.instrument(again, backend="mine", watch_weights=False); again(x)
        from brick_agent._torch.backend import processor
        reported = ", ".join([torch.backends.cpu.get_cpu_capability(), *processor()]), torch.__version__
        """,
    )
    processor, version = got.reported
    assert [got.reading.name(each["backend"]) for each in rows(got)["layers.*.norm", 1]] == [
        f"eager, 1 threads, {processor}, torch {version}",
        f"eager, high precision, 2 threads, {processor}, torch {version}",
        f"mine, 2 threads, {processor}",
    ]


# ---- the calls that record rows

CALLS = """
class Layer(nn.Module):
    def __init__(self, part): super().__init__(); self.part_norm, self.use = part, None
    def forward(self, x): return self.use(self.part_norm, x)
class Calls(nn.Module):
    def __init__(self, part, use):
        super().__init__()
        self.layers = nn.ModuleList([Layer(part)]); self.layers[0].use = use
        self.head = nn.Identity()
    def forward(self, x): return self.layers[0](x)
class Own(nn.LayerNorm):
    pass
class RMSNorm(nn.Module):
    "What it returns is up to the test."
    def __init__(self, result): super().__init__(); self.weight, self.result = nn.Parameter(torch.ones(1)), result
    def forward(self, *args, **keywords): return self.result(*args, **keywords)
x = torch.randn(4, 16)
def call(part, use=lambda part, x: part(x), given=x):
    model = Calls(part, use).eval()
    wanted = use(part, given)
    brick.instrument(model, watch_weights=False)
    result = model(given)
    brick.uninstrument(model)
    return model, repr(result) == repr(wanted)
"""
RECORDED = {
    "a LayerNorm": "call(nn.LayerNorm(16))",
    "a subclass with its forward": "call(Own(16))",
    "a tuple": "call(RMSNorm(lambda x: (x + 1, None)))",
    "a list": "call(RMSNorm(lambda x: [x + 1]))",
    "bfloat16": "call(RMSNorm(lambda x: x.bfloat16()))",
    "a view": "call(RMSNorm(lambda x: x.flip(0)), given=torch.randn(16, 4).T)",
    "three dimensions": "call(RMSNorm(lambda x: x + 1), given=torch.randn(2, 2, 16))",
    "in place": "call(RMSNorm(lambda x: x.mul_(1)))",
    "with gradients": "call(RMSNorm(lambda x: x * 2), given=torch.randn(4, 16, requires_grad=True))",
}
NOT_RECORDED = {
    "arguments": {
        "two arguments": "call(RMSNorm(lambda x, y: x), lambda part, x: part(x, x))",
        "a keyword": "call(RMSNorm(lambda x: x), lambda part, x: part(x=x))",
        "an argument and a keyword": "call(RMSNorm(lambda x, eps: x), lambda part, x: part(x, eps=1))",
        "no argument": "call(RMSNorm(lambda: x), lambda part, x: part())",
    },
    "unreadable": {
        "no tensor": "call(RMSNorm(lambda x: x), lambda part, x: part([x]))",
        "a None": "call(RMSNorm(lambda x: torch.ones(4, 2)), lambda part, x: part(None))",
        "integers": "call(RMSNorm(lambda x: x + 0.5), given=torch.arange(64).reshape(4, 16))",
        "a meta tensor": "call(RMSNorm(lambda x: x), given=torch.ones(4, 16, device='meta'))",
        "sparse": "call(RMSNorm(lambda x: x), given=torch.eye(4).to_sparse())",
    },
    "output": {
        "an output of integers": "call(RMSNorm(lambda x: x.int()))",
        "an output without a tensor": "call(RMSNorm(lambda x: {'a': 1}))",
        "an empty tuple": "call(RMSNorm(lambda x: ()))",
        "another number of rows": "call(RMSNorm(lambda x: x[:3]))",
        "other leading dimensions": "call(RMSNorm(lambda x: x.reshape(2, 2, 16)))",
    },
}
# Calls that have no rows at all.
EMPTY = {
    "no rows": "call(RMSNorm(lambda x: x), given=torch.ones(0, 16))",
    "no columns": "call(RMSNorm(lambda x: x), given=torch.ones(4, 0))",
    "no dimension": "call(RMSNorm(lambda x: x), given=torch.tensor(1.0))",
}


@pytest.mark.parametrize("source", RECORDED.values(), ids=RECORDED.keys())
def test_rows_of_one_tensor_are_recorded(worker: Start, prefix: str, source: str) -> None:
    got = left(worker, prefix, f"{CALLS}reported = {source}[1]", BRICKD_STRICT="1")
    assert got.reported
    ((record,),) = rows(got).values()
    assert (record["position"], record["inputs"]) == (4, 7)


@pytest.mark.parametrize("reason", [*NOT_RECORDED, None])
def test_nothing_is_recorded_of_other_calls_and_each_is_counted(worker: Start, prefix: str, reason: str | None) -> None:
    sources = EMPTY if reason is None else NOT_RECORDED[reason]
    got = left(worker, prefix, f"{CALLS}reported = [each[1] for each in ({', '.join(sources.values())})]")
    assert got.reported == [True] * len(sources)
    found = rows(got)
    assert found == {}, list(sources)
    seen = {why: n for why, sites in unknown(got).items() if (n := sites.get(("layers.*.part_norm", 0)))}
    assert seen == ({} if reason is None else {reason: len(sources)})
    assert lost(got.reading) == 0


def test_nothing_is_recorded_while_training_or_under_transforms(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        dropped = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)).eval()
        dropped[1].train()
        model.layers[0].mlp = dropped
        model.head.train()
        brick.instrument(model, watch_weights=False)
        model(x)
        model.eval()
        torch.vmap(model)(torch.randn(2, 3, 16))
        torch.func.grad(lambda x: model(x).sum())(x)
        """,
    )
    found = {site: len(records) for site, records in rows(got).items()}
    assert found.keys().isdisjoint({("head", -1), ("layers.*.mlp", 0)})
    assert found == dict.fromkeys(found, 1)
    assert ("layers.*.mlp.0", 0) in found
    assert unknown(got)["training"].keys() == {("head", -1), ("layers.*.mlp", 0)}
    assert ("layers.*.norm", 1) in unknown(got)["unreadable"], (
        "inside a transform of torch.func, tensors have no values"
    )


TOGETHER = """
class Batched(nn.Module):
    "A scale over the whole batch."
    def forward(self, x): return torch.round(x / x.abs().max() * 127) / 127
QuantLinear = type("QuantLinear", (Batched,), {})
class Attention(nn.Module):
    def __init__(self): super().__init__(); self.q_proj = nn.Linear(16, 16)
    def forward(self, x): return torch.softmax(x @ x.mT, -1) @ self.q_proj(x)
def whole(name, part):
    class Layer(nn.Module):
        def __init__(self): super().__init__(); setattr(self, name, part)
        def forward(self, x): return getattr(self, name)(x)
    outer = nn.Module()
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.ModuleList([Layer()]), nn.Linear(16, 4)
        def forward(self, x): return self.head(self.layers[0](x))
    return Outer().eval()
def rows_differ(part):
    "Whether the output for a row depends on the rest of the batch."
    one, other = torch.randn(2, 2, 5, 16)
    other[0, 0] = one[0, 0]
    with torch.no_grad(): return not torch.allclose(part(one)[0, 0], part(other)[0, 0], atol=1e-4)
"""
INT8 = "torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(16, 16), nn.GELU()), {nn.Linear})"
UNKNOWN = (
    ("quantized", "mlp", "nn.Sequential(nn.Linear(16, 16), QuantLinear())"),
    ("quantized", "mlp", INT8),
    ("stateful", "self_attn", "Attention()"),
    ("not_row_wise", "mlp", "nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(5, track_running_stats=False))"),
    ("not_row_wise", "mlp", "nn.Sequential(nn.Linear(16, 16), nn.Softmax(1))"),
    ("training", "mlp", "nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5).train())"),
)


@pytest.mark.parametrize(("reason", "name", "part"), UNKNOWN)
def test_a_part_whose_rows_depend_on_more_than_the_row_is_unknown(
    worker: Start, prefix: str, reason: str, name: str, part: str
) -> None:
    """In such a part, equal rows of different batches give different results, so healthy workers would differ."""
    source = f"""
import warnings; warnings.simplefilter("ignore")
model = whole("{name}", {part})
if "{reason}" == "training": model.layers[0].mlp[1].train()
reported = rows_differ(model.layers[0].{name})
brick.instrument(model, watch_weights=False)
model(torch.randn(2, 5, 16)); model(torch.randn(2, 5, 16))
"""
    got = left(worker, prefix, TOGETHER + source)
    assert got.reported
    assert f"layers.*.{name}" not in names(got)
    # The INT8 part has no parameters. So the agent knows the reason before any call, and it examines and counts no
    # calls.
    assert unknown(got)[reason][f"layers.*.{name}", 0] == (0 if part == INT8 else 2)
    assert "head" in names(got)


def test_a_call_that_a_device_records_into_a_graph_is_unknown(worker: Start, prefix: str) -> None:
    """While a graph is captured, the call computes nothing: its tensors contain the numbers of an earlier call."""
    got = left(
        worker,
        prefix,
        f"{CALLS}"
        """
torch.cuda.is_initialized = torch.cuda.is_current_stream_capturing = lambda: True
reported = call(RMSNorm(lambda x: x), given=torch.ones(4, 16, device="meta"))[1]
""",
    )
    assert (got.reported, rows(got)) == (True, {})
    assert unknown(got)["capture"]["layers.*.part_norm", 0] == 1


def test_rows_that_another_argument_scales_are_unknown(worker: Start, prefix: str) -> None:
    """Equal rows with different scales have different results."""
    got = left(
        worker,
        prefix,
        f"{CALLS}"
        """
part = RMSNorm(lambda x, scale: x * scale)
reported = [call(part, lambda part, x: part(x, torch.tensor(float(n))))[1] for n in (1, 2)]
""",
    )
    assert (got.reported, rows(got)) == ([True, True], {})
    assert unknown(got)["arguments"]["layers.*.part_norm", 0] == 2


def test_a_compiled_part_is_unknown_also_if_it_is_compiled_later(worker: Start, prefix: str) -> None:
    """A worker that falls back to eager computation differs by rounding from a worker that does not."""
    got = left(
        worker,
        prefix,
        """
        model.layers[0].mlp.compile(backend="eager")
        brick.instrument(model, watch_weights=False)
        model.layers[1].mlp[0].compile(backend="eager")
        model(x)
        """,
    )
    assert {site for site in rows(got) if site[0] == "layers.*.mlp"} == {("layers.*.mlp", 2)}
    assert unknown(got)["compiled"] == {
        ("layers.*", 0): 1, ("layers.*.mlp", 0): 1, ("layers.*.mlp", 1): 1,
    }, "the layer contains a compiled part, and brickd does not see inside such a part"  # fmt: skip


def test_settings_that_cannot_be_read_are_unknown_and_those_of_one_library_are_not(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        try: reported = torch.get_float32_matmul_precision()
        except RuntimeError: reported = None
        brick.instrument(model, watch_weights=False)
        model(x)
        def refused(*_): raise RuntimeError("no precision")
        torch.get_float32_matmul_precision = torch._C._get_fp32_precision_getter = refused
        brick.instrument(model, watch_weights=False)
        model(x + 1)
        """,
    )
    assert got.reported is None
    (record,) = rows(got)["layers.*.norm", 1]
    assert "oneDNN bf16 precision" in got.reading.name(record["backend"])
    assert unknown(got)["settings"]["layers.*.norm", 1] == 1


def test_other_settings_are_another_context(worker: Start, prefix: str) -> None:
    """With each of these settings, a healthy worker rounds differently."""
    got = left(
        worker,
        prefix,
        """
        brick.instrument(model, watch_weights=False)
        with torch.no_grad():
            model(x)
            with torch.autocast("cpu", torch.bfloat16): model(x)
            with torch.autocast("cpu", torch.float16): model(x)
            with torch.backends.mkldnn.flags(enabled=False): model(x)
        """,
    )
    first = rows(got)["layers.*.mlp.0", 0]
    assert len({each["tensors"][1]["checksum"] for each in first}) == 1, "the input row is the same"
    assert len({each["tensors"][0]["checksum"] for each in first[:3]}) == 3
    texts = [got.reading.name(each["backend"]) for each in first]
    assert len(set(texts)) == 4
    assert [[word for word in ("autocast bfloat16", "autocast float16", "without oneDNN") if word in text] for text in
            texts] == [[], ["autocast bfloat16"], ["autocast float16"], ["without oneDNN"]]  # fmt: skip


def test_calls_with_rows_are_counted_by_phase(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        brick.instrument(model, only=["layers.*.norm"], watch_weights=False)
        for shape in ((2, 5, 16), (3, 1, 16), (1, 1, 16), (4, 16)): model(torch.randn(shape))
        """,
    )
    assert calls(got).phases == {"prefill": 3, "decode": 6, "packed": 3}
    assert calls(got).kernels == {"layers.*.norm": calls(got).phases}
    paths = [each for each in got.reading.paths if each is not None and each.unit == UNIT_ROWS and each.parent >= 0]
    assert len(paths) == 3, "a deep model needs no path per layer"


def test_quantized_parts_that_are_never_looked_at_are_known(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        import warnings; warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
        brick.instrument(model, watch_weights=False)
        """,
    )
    inside = {("layers.*.mlp.0", layer): 0 for layer in range(3)} | {("layers.*.mlp.2", layer): 0 for layer in range(3)}
    assert unknown(got)["quantized"].items() >= inside.items()


def test_the_number_of_turns_is_published(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        "brick.instrument(model, sites=4, watch_weights=False)\nfor n in range(40): model(x + n)",
    )
    assert calls(got).turns == 3


def test_a_part_that_raises_raises_the_same_and_records_nothing(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        f"""{CALLS}
def use(part, x):
    try: part(x)
    except ZeroDivisionError as error: return str(error)
reported = call(RMSNorm(lambda x: 1 / 0), use)[1]
""",
    )
    assert got.reported
    assert rows(got) == {}


def test_rows_never_cost_another_record(worker: Start, prefix: str) -> None:
    source = "brick.instrument(model, only=['layers.*.mlp'], watch_weights=False)\nfor n in range(40): model(x + n)"
    got = left(worker, prefix, source, BRICKD_EVENTS="256")
    of_rows, whole = sum(map(len, rows(got).values())), sum(kernels(got).values())
    assert of_rows > 0
    assert of_rows * 10 <= 128
    assert whole == (256 - 32 - of_rows * 10) // 6
    assert lost(got.reading) == 0, "without room, instrumented parts do not attempt to record"


# ---- bad rows

BAD = {
    "NaN": ("x = torch.full((2, 5, 16), float('nan'))", 1),
    "zeros": ("x = torch.zeros(2, 5, 16)", 1),
    "equal rows": ("x = torch.randn(1, 1, 16).expand(2, 5, 16)", 1),
    "two different rows": ("x = torch.randn(1, 2, 16).repeat(2, 2, 1)", 2),
    "a batch of one": ("x = torch.randn(1, 1, 16)", 1),
    "odd strides": ("x = torch.randn(16, 7, 4).permute(2, 1, 0)[::2, ::3]", 4),
    "negative zeros": ("x = torch.stack([torch.zeros(16), -torch.zeros(16)])[None]", 2),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_recorded_unchanged_each_once(worker: Start, prefix: str, name: str) -> None:
    source, different = BAD[name]
    got = left(
        worker,
        prefix,
        f"""{CALLS}
{source}
same = call(RMSNorm(lambda x: x * 2), given=x)[1]
reported = same, [[sums(row) for row in tensor.reshape(-1, 16)] for tensor in (x * 2, x)]
""",
        BRICKD_STRICT="1",
    )
    same, (outputs, inputs) = got.reported
    ((record,),) = rows(got).values()
    found = [f"{tensor['checksum']:016x}" for tensor in record["tensors"]]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert (same, len(pairs)) == (True, different)
    assert set(pairs) <= set(zip(outputs, inputs, strict=True))


def test_a_part_that_is_called_twice_in_a_step_has_two_records_of_that_step(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        class Twice(Model):
            def forward(self, x): return self.head(self.layers[0].mlp(self.layers[0].mlp(x)))
        model = Twice().eval()
        brick.instrument(model, only=["layers.*.mlp"], watch_weights=False)
        model(torch.randn(2, 5, 16))
        """,
    )
    first, second = rows(got)["layers.*.mlp", 0]
    assert first["step"] == second["step"] != 0
    assert first["tensors"][1]["checksum"] != second["tensors"][1]["checksum"]


# ---- the parts that record rows

PARTS = """
from brick_agent._torch.module_selection import parts
from brick_agent._torch.row_wise import in_turn, is_row_wise
class Attention(nn.Module):
    def __init__(self): super().__init__(); self.q_proj = nn.Linear(8, 8)
class GroupedMLP(nn.Module):
    def __init__(self, *inside): super().__init__(); self.inside = nn.ModuleList([nn.Linear(8, 8), *inside])
    def forward(self, x): return x
class LimitedMLP(GroupedMLP):
    def __init__(self): super().__init__(); self.expert_capacity = 4
class Int8Linear(nn.Linear): pass
class OwnLinear(nn.Linear):
    def forward(self, x): return super().forward(x) / x.abs().max()
class LayerNorm2d(nn.LayerNorm):
    def forward(self, x): return super().forward(x.movedim(1, -1)).movedim(-1, 1)
class ExpertChoiceRouter(nn.Module): pass
class SpatialGate(nn.Module): pass
class LoraLinear(nn.Module): pass
class Outlier(nn.Module): __module__ = "bitsandbytes.nn"
class TopKRouter(nn.Linear):
    def forward(self, x): return super().forward(x).softmax(-1)
patched = nn.Linear(8, 8); patched.forward = lambda x: x
odd = nn.Linear(8, 8); odd.weight = torch.nn.parameter.UninitializedParameter()
EACH = {
    "norm": nn.LayerNorm(8), "rms": LlamaRMSNorm(8), "torchs": nn.RMSNorm(8), "proj": nn.Linear(8, 8),
    "mlp": GroupedMLP(nn.GELU(), nn.Dropout()), "moe_block": GroupedMLP(GroupedMLP()),
    "router": TopKRouter(8, 4), "routed_mlp": GroupedMLP(TopKRouter(8, 4)), "mlp_dropout": nn.Dropout(),
    "wide_norm": nn.LayerNorm((4, 8)), "norm2d": LayerNorm2d(8), "batch_norm": nn.BatchNorm1d(8),
    "group_norm": nn.GroupNorm(2, 8), "instance_norm": nn.InstanceNorm1d(8), "conv": nn.Conv1d(8, 8, 1),
    "self_attn": Attention(), "embed": nn.Embedding(8, 8), "block": nn.Sequential(nn.Linear(8, 8)),
    "conv_mlp": GroupedMLP(nn.Conv1d(8, 8, 1)), "mlp_attends": GroupedMLP(Attention()),
    "batch_mlp": GroupedMLP(nn.BatchNorm1d(8)), "pool_mlp": GroupedMLP(nn.AvgPool1d(2)),
    "capacity_mlp": GroupedMLP(LimitedMLP()), "int8": Int8Linear(8, 8), "own": OwnLinear(8, 8),
    "choice_mlp": GroupedMLP(ExpertChoiceRouter()), "spatial_mlp": GroupedMLP(SpatialGate()),
    "adapted_mlp": GroupedMLP(LoraLinear()), "outlier_mlp": GroupedMLP(Outlier()), "patched": patched,
    "odd": odd, "rnn_mlp": GroupedMLP(nn.GRU(8, 8)),
    "quantized": torch.ao.nn.quantized.dynamic.Linear(8, 8),
    "softmax_mlp": GroupedMLP(nn.Softmax(-1)), "mixing_mlp": GroupedMLP(nn.Softmax(1)),
    "wide_mlp": GroupedMLP(nn.Softmax2d()), "embed_mlp": GroupedMLP(nn.Embedding(8, 8)),
    "flat_mlp": GroupedMLP(nn.Flatten(0)),
}
"""


def test_row_wise_parts_are_norms_projections_and_mlps_that_mix_no_rows(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        PARTS
        + """
outer = nn.Module(); outer.layers = nn.ModuleList([nn.Module()])
for name, each in EACH.items(): setattr(outer.layers[0], name, each)
found = {part.qualified.removeprefix("layers.0."): is_row_wise(part) for part in parts(outer)}
brick.init()
reported = [name for name in EACH if found.get(name)]
""",
    )
    assert got.reported == ["norm", "rms", "torchs", "proj", "mlp", "moe_block", "router", "routed_mlp", "softmax_mlp"]


def test_parts_with_code_of_the_host_are_only_presumed_to_be_row_wise(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        PARTS
        + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.post_norm, self.linear_1 = nn.LayerNorm(16), LlamaRMSNorm(16), Own(16, 16)
        self.mlp, self.dense_mlp = GroupedMLP(), nn.Sequential(nn.Linear(16, 16), nn.GELU())
    def forward(self, x): return self.dense_mlp(self.mlp(self.linear_1(self.post_norm(self.norm(x)))))
class Own(nn.Linear): pass
class Outer(nn.Module):
    def __init__(self): super().__init__(); self.layers, self.head = nn.ModuleList([Block()]), nn.Linear(16, 4)
    def forward(self, x): return self.head(self.layers[0](x))
model = Outer().eval()
for _ in range(2):
    brick.instrument(model, watch_weights=False)
    model(x)
""",
    )
    reading = got.reading
    of_host = {reading.name(site.name) for site in reading.sites if site is not None and site.unit == SITE_PRESUMED}
    assert of_host == {"layers.*.post_norm", "layers.*.mlp"}
    assert names(got) >= of_host | {"layers.*.norm", "layers.*.linear_1", "layers.*.dense_mlp", "head"}


def test_single_experts_are_not_sites(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        class SparseMoeBlock(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
            def forward(self, x): return sum(each(x) for each in self.experts), self.gate(x)
        class Skipped(nn.Module):
            def __init__(self, inner): super().__init__(); self.mlp = inner
            def forward(self, x): return self.mlp(x)[0]
        for layer in model.layers: layer.mlp = Skipped(SparseMoeBlock())
        brick.instrument(model.eval(), watch_weights=False)
        model(x)
        """,
    )
    assert {name for name in names(got) if "expert" in name} == set()
    assert names(got) >= {"layers.*.mlp", "layers.*.norm"}


DEEP = """
class Deep(Model):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))
model = Deep(60).eval()
"""


def test_further_parts_take_turns_and_each_layer_has_one_in_each(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        DEEP
        + PARTS
        + """
from brick_agent._torch.module_selection import chosen
def turns(most):
    return [(part.qualified, turn, of) for part, turn, of in in_turn(model, chosen(model, most), most)]
brick.init()
reported = [turns(64), turns(16), turns(0)]
""",
    )
    default, few, none = got.reported
    assert none == []
    for found, most in ((default, 64), (few, 16)):
        (of,) = {of for _, _, of in found}
        assert of == -(-len(found) // most)
        counts = [sum(turn == each for _, turn, _ in found) for each in range(of)]
        assert max(counts) - 1 <= min(counts) <= max(counts) <= most
    assert {qualified.split(".")[1] for qualified, _, _ in default} == {str(n) for n in range(60)}
    each = {turn: {name.split(".")[1] for name, at, _ in default if at == turn} for turn in range(default[0][2])}
    assert all(len(layers) >= 57 for layers in each.values())


def test_a_part_without_its_turn_is_a_known_site_without_records(worker: Start, prefix: str) -> None:
    got = recorded_in(
        EPOCH,
        worker,
        prefix,
        MODEL + MORE + DEEP + "brick.instrument(model, sites=16, watch_weights=False)\nmodel(x)",
        BRICKD_FINGERPRINTS="all",
    )
    known = {site[:2] for site in got.sites if site is not None}
    found = rows(got)
    assert {("layers.*.norm", n) for n in range(60)} <= known
    assert 16 < len(found) <= 32 < len(known)


def test_selected_parts_get_no_further_sites(worker: Start, prefix: str) -> None:
    got = left(worker, prefix, "brick.instrument(model, only=['layers.*.mlp'], watch_weights=False)\nmodel(x)")
    assert {site[:2] for site in got.sites if site is not None} == {("layers.*.mlp", n) for n in range(3)}
    assert names(got) == {"layers.*.mlp"}
