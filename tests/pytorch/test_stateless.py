"""Calls of an attention are compared if their arguments alone determine the output.

Each variant of a module is called in its own process; its records show whether the call counted as stateful. Then two
workers with the same model show which calls are compared, and where a fault in an attention is found.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from checksums import recorded
from faults import Start
from running import running, until
from verbs import document, started

from brickd.base.paths import runtime
from brickd.shm import _reader

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

ATTENTION = """
import torch, warnings
from torch import nn
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(3)
class Attention(nn.Module):
    def __init_subclass__(cls): cls.__name__ += "Attention"
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.calls, self.scales = nn.Linear(8, 24), nn.Linear(8, 8), 0, [0.5]
        self.register_buffer("mask", torch.ones(1))
    def forward(self, x, *more, **keywords):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v) * self.mask)
x = torch.randn(2, 3, 8)
"""
VARIANTS = """
class DynamicCache:
    def __init__(self, *tokens): self.tokens = tokens
    def __len__(self): return len(self.tokens)
    def get_seq_length(self, layer=0): return self.tokens[0]
class Kept: seen = None
class Plain(Attention): pass
class Counts(Attention):
    def forward(self, x): self.calls += 1; return super().forward(x)
class Appends(Attention):
    def __init__(self): super().__init__(); self.kept = []
    def forward(self, x): self.kept.append(x); return super().forward(x)
class Replaces(Attention):
    def __init__(self): super().__init__(); self.last = torch.zeros(1)
    def forward(self, x): self.last = x; return super().forward(x)
class Writes(Attention):
    def __init__(self): super().__init__(); self.last = torch.zeros(2, 3, 8)
    def forward(self, x): self.last.copy_(x); return super().forward(x)
class WritesBuffer(Attention):
    def forward(self, x): y = super().forward(x); self.mask.mul_(1); return y
class HasCache(Attention):
    def __init__(self): super().__init__(); self.k_cache = torch.zeros(4, 8)
class HasCacheObject(Attention):
    def __init__(self): super().__init__(); self.past = DynamicCache(0)
class HasCacheBuffer(Attention):
    def __init__(self): super().__init__(); self.register_buffer("cache_k", torch.zeros(4, 8))
class HasObject(Attention):
    def __init__(self): super().__init__(); self.kept = Kept(); self.kept.seen = [torch.zeros(1)]
class HasPlainObject(Attention):
    def __init__(self): super().__init__(); self.kept = Kept(); self.kept.seen = 1
class ChangesObject(HasPlainObject):
    def forward(self, x): self.kept.seen += 1; return super().forward(x)
class Adds(Attention):
    def forward(self, x): self.new = 1; return super().forward(x)
class Drops(Attention):
    def __init__(self): super().__init__(); self.dropout = nn.Dropout()
class Returns(Attention):
    def forward(self, x): return super().forward(x), DynamicCache(3)
class Around(nn.Module):
    def __init__(self, kind): super().__init__(); self.inner, self.mlp = kind(), nn.Linear(8, 8)
    def forward(self, x): return self.mlp(self.inner(x))
variants = {
    "plain": Plain(), "none": Plain(), "empty": Plain(), "cached": Plain(), "word_none": Plain(), "opaque": Plain(),
    "single": Plain(), "flat": Plain(), "counts": Counts(), "appends": Appends(), "replaces": Replaces(),
    "writes": Writes(), "writes_buffer": WritesBuffer(), "has_cache": HasCache(), "cache_object": HasCacheObject(),
    "cache_buffer": HasCacheBuffer(), "has_object": HasObject(), "plain_object": HasPlainObject(), "adds": Adds(),
    "changes_object": ChangesObject(), "drops": Drops(), "trains": Plain(), "returns": Returns(),
    "around": Around(Plain), "around_writes": Around(Writes), "attn": nn.Linear(8, 8), "mlp": nn.Linear(8, 8),
}
model = nn.ModuleDict(variants).eval()
model["trains"].train()
model["drops"].dropout.train()
given = {
    "none": ((x,), dict(past_key_values=None)), "empty": ((x,), dict(cache=DynamicCache(0))),
    "cached": ((x,), dict(layer_past=DynamicCache(4))), "word_none": ((x,), dict(cache=None)),
    "opaque": ((x, Kept()), {}), "single": ((x[:, :1],), {}), "flat": ((x[0],), {}),
}
brick.instrument(model, only=list(variants), watch_weights=False)
with torch.no_grad():
    for name, each in variants.items():
        args, keywords = given.get(name, ((x,), {}))
        each(*args, **keywords)
"""


def states(worker: Start, prefix: str, source: str) -> dict[str, str]:
    """Return what the host stated for each site: "stateful", "stateless", or "" if the name of the site decides."""
    got = recorded(worker, prefix, ATTENTION + textwrap.dedent(source), BRICKD_FINGERPRINTS="all")
    words = {0: "", _reader.CHECKED_STATEFUL: "stateful", _reader.CHECKED_STATELESS: "stateless"}
    found = {}
    for each in got.events:
        if each["kind"] == "checked" and (site := got.sites[each["site"]]) is not None:
            found[site[0]] = words[each["flags"] & (_reader.CHECKED_STATEFUL | _reader.CHECKED_STATELESS)]
    return found


def test_an_attention_is_stateless_if_its_arguments_determine_the_output(worker: Start, prefix: str) -> None:
    found = states(worker, prefix, VARIANTS)
    stateless = {name for name, state in found.items() if state == "stateless"}
    assert stateless == {"plain", "none", "word_none", "plain_object", "around", "attn", "mlp"}
    assert {name for name, state in found.items() if state == ""} == set()
    assert len(found) == 27


def test_a_call_that_fills_an_empty_cache_leaves_the_attention_stateless(worker: Start, prefix: str) -> None:
    source = """
    class DynamicCache:
        held = 0
        def __len__(self): return 1
        def get_seq_length(self, layer=0): return self.held
    class Fills(Attention):
        def forward(self, x, past_key_values): past_key_values.held += x.shape[1]; return super().forward(x)
    model, cache = nn.ModuleDict({"first": Fills(), "second": Fills()}).eval(), DynamicCache()
    brick.instrument(model, only=["*"], watch_weights=False)
    with torch.inference_mode():
        model["first"](x, past_key_values=cache); model["second"](x, past_key_values=cache)
    """
    found = states(worker, prefix, source)
    assert (found["first"], found["second"]) == ("stateless", "stateful")


def test_a_buffer_without_a_version_counter_is_state(worker: Start, prefix: str) -> None:
    source = """
    with torch.inference_mode():
        model = nn.ModuleDict({"counted": Attention(), "uncounted": Attention()}).eval()
    model["counted"].mask = torch.ones(1)
    brick.instrument(model, only=["counted", "uncounted"], watch_weights=False)
    with torch.inference_mode():
        for each in model.values(): each(x)
    """
    assert states(worker, prefix, source) == {"counted": "stateless", "uncounted": "stateful"}


# ---- two workers -------------------------------------------------------------------------------------------------

UNET = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn, self.mlp = nn.LayerNorm(8), Attention(), nn.Linear(8, 8)
    def forward(self, x): return x + self.mlp(self.attn(self.norm(x)))
class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.attentions = nn.ModuleList([Block()])
    def forward(self, x):
        x = self.norm(self.conv(x))
        flat = x.flatten(2).transpose(1, 2)
        for each in self.attentions: flat = each(flat)
        return flat.transpose(1, 2).reshape(x.shape)
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Linear(1, 8)
        self.down, self.up = nn.ModuleList(Stage() for _ in range(2)), nn.ModuleList(Stage() for _ in range(2))
    def forward(self, x, timestep):
        x = x + self.time(timestep)[:, :, None, None]
        kept = []
        for each in self.down: x = each(x); kept.append(x); x = nn.functional.avg_pool2d(x, 2)
        for each in self.up: x = each(nn.functional.interpolate(x, scale_factor=2) + kept.pop())
        return x
model = UNet().eval()
BREAK = lambda: model.down[1].attentions[0].attn.out.weight.data.view(-1)[5:6].mul_(1.5)
def call(n, seed=torch.Generator()):
    seed.manual_seed(n)
    return model(torch.randn(1, 8, 8, 8, generator=seed), torch.tensor([[n / 10]]))
"""
FLEET = """
if BROKEN: BREAK()
with torch.inference_mode():
    plain = [call(n) for n in range(8)]
    brick.instrument(model, watch_weights=False)
    same = [torch.equal(call(n), plain[n]) for n in range(8)]
assert all(same), same
pause()
"""


def fleet(worker: Start, model: str, broken: tuple[bool, ...] = (False, False)) -> None:
    key = str(runtime().directory / "key")
    for number, bad in enumerate(broken):
        program = f"BROKEN = {bad}\n{ATTENTION}{model}{FLEET}"
        started(worker, program, BRICKD_SERVICE="api", BRICKD_WORKER=str(number), BRICKD_KEY_FILE=key,
                BRICKD_FINGERPRINTS="all")  # fmt: skip


def seen() -> dict[str, Any]:
    """Wait until everything is compared; return the states of the sites in the comparison by input."""
    with running():
        until(lambda: document("coverage", "api")["services"][0]["input"]["compared"])
        sites = document("coverage", "api")["sites"]
    return {site["kernel"]: site["state"] for site in sites if site["evidence"] != "weights"}


def test_every_attention_and_stage_of_a_unet_is_compared(worker: Start, prefix: str) -> None:
    fleet(worker, UNET)
    found = seen()
    assert set(found.values()) == {"compared"}
    blocks = {f"{way}.*{inner}" for way in ("down", "up") for inner in ("", ".attentions.0")}
    inside = ("attn", "attn.qkv", "attn.out", "mlp", "norm")
    parts = {f"{way}.*.attentions.0.{own}" for way in ("down", "up") for own in inside}
    assert found.keys() == blocks | parts | {"time"}


ATTENTION_BROKEN = "down.*.attentions.0.attn", 1


def places(coverage: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Return the places at which differences began."""
    return [(each["kernel"], each["layer"]) for each in coverage["findings"] if each["blame"] == "culprit"]


def test_a_fault_in_one_attention_is_found_there(worker: Start, prefix: str) -> None:
    fleet(worker, UNET, (False, True, False))
    with running() as daemon:
        coverage = daemon.once("/coverage", lambda answer: ATTENTION_BROKEN in places(answer))
    assert {kernel for kernel, layer in places(coverage) if layer != 1 or not kernel.startswith("down.*")} == set()
    assert {each["workers"][0] for each in coverage["findings"]} == {"api/1"}


# ---- transformers ------------------------------------------------------------------------------------------------

FAMILIES = """
import os
os.environ["HF_HUB_OFFLINE"], os.environ["TRANSFORMERS_VERBOSITY"] = "1", "error"
import transformers
small = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
words = dict(vocab_size=64, **small)
ids = lambda n: (torch.arange(6) + n).reshape(1, 6) % 64
if FAMILY == "vit":
    config = transformers.ViTConfig(image_size=16, patch_size=4, **small)
    model = transformers.ViTForImageClassification(config).eval()
    layer = lambda: next(each for name, each in model.named_modules() if name.endswith("1.attention"))
    pixels = lambda n: torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(n))
    call = lambda n: model(pixel_values=pixels(n)).logits
elif FAMILY == "bert":
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**words)).eval()
    layer = lambda: model.bert.encoder.layer[1].attention
    call = lambda n: model(input_ids=ids(n), attention_mask=torch.ones(1, 6, dtype=torch.long)).logits
else:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=1, **words)).eval()
    call = lambda n: model.generate(ids(n), max_new_tokens=3, do_sample=False, pad_token_id=0)
BREAK = lambda: list(layer().parameters())[-2].data.view(-1)[5:6].mul_(1.5)
"""
LAYERS = {"vit": ("vit.layers.*", "vit"), "bert": ("bert.encoder.layer.*", "bert")}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["vit", "bert"])
def test_an_encoder_is_compared_and_a_fault_found_at_its_attention(worker: Start, prefix: str, family: str) -> None:
    pytest.importorskip("transformers", reason="transformers are not installed: .venv/bin/pip install '.[torch]'")
    fleet(worker, f"FAMILY = {family!r}\n{FAMILIES}", (False, True, False))
    layers, whole = LAYERS[family]
    with running() as daemon:
        coverage = daemon.once("/coverage", lambda answer: (f"{layers}.attention", 1) in places(answer))
    # Leave out the parts that mix rows, because their rows are unknown.
    sites = [site for site in coverage["sites"] if site["state"] != "unknown"]
    states = {(site["kernel"], site["layer"]): site["state"] for site in sites}
    assert states[layers, 0] == states[f"{layers}.attention", 0] == "compared"
    assert states[whole, None] == "differs"


@pytest.mark.slow
def test_a_decoder_with_a_cache_is_stateful_and_raises_no_alarm(worker: Start, prefix: str) -> None:
    pytest.importorskip("transformers", reason="transformers are not installed: .venv/bin/pip install '.[torch]'")
    fleet(worker, f"FAMILY = 'llama'\n{FAMILIES}")
    with running() as daemon:
        coverage = daemon.once("/coverage", lambda answer: answer["services"][0]["input"]["compared"])
    assert coverage["findings"] == []
    whole = (site for site in coverage["sites"] if site["layer"] == 1 and site["evidence"] != ["history"])
    rows = {site["kernel"]: site for site in whole}
    # Each prompt takes three steps: the first step fills an empty cache, and the others read the cache.
    attention = rows["layers.*.self_attn"]
    assert (attention["fingerprints"], attention["stateful"]) == (48, 32)
    assert rows["layers.*.mlp"]["stateful"] == 0
