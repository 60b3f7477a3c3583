"""Histories of a decoder of transformers: the agent keeps them, compares rows by them, and says which are unknown.

These tests are skipped if torch or transformers is not installed.
"""

from __future__ import annotations

from typing import Any

import pytest
from checksums import places, recorded
from decoder_worker import PROGRAM, fleets
from faults import Start
from verbs import document

from brickd.shm._reader import CHECKED_HISTORY

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: .venv/bin/pip install torch==2.13.0 transformers")

ENVIRONMENT = {"BRICKD_SERVICE": "api", "BRICKD_FINGERPRINTS": "all", "BRICKD_EVENTS": "131072"}
SITES = {"layers.*.self_attn", "layers.*"}
INSTRUMENT = "brick.instrument(model, watch_weights=False)\n"


def start(worker: Start, *fleet: tuple[str, int, int, str], before: str = "") -> None:
    """Start the workers of services, and wait until they have served."""
    worker(fleets(*fleet, before=before), **ENVIRONMENT).paused()


def by_history(answer: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in answer["evidence_classes"] if each["evidence"] == "history")
    return dict(found)


def compared(answer: dict[str, Any]) -> dict[str, int]:
    counts = dict[str, int]()
    for each in answer["sites"]:
        counts[each["kernel"]] = counts.get(each["kernel"], 0) + each["compared"]
    return counts


# ---- workers whose batches have other neighbours


def test_equal_sequences_among_other_neighbours_are_equal(worker: Start) -> None:
    served = (
        f"{INSTRUMENT}serve(model); serve(model, padding=2); serve(model, kept=False)\n"
        "serve(model, padding=3, placed=True)"
    )
    hows = {"sdpa": "", "bfloat16": "torch.bfloat16", "eager": "attn_implementation='eager'"}
    start(worker, *((name, 3, -1, f"model = made({how})\n{served}") for name, how in hows.items()))
    for service in hows:
        answer = document("diff", service, "--by", "history")
        assert (answer["verdict"], by_history(answer)["verdict"]) == ("identical", "equal")
        assert by_history(answer)["unknown"] == {}
        counts = compared(answer)
        assert counts.keys() >= SITES
        # In each of three layers, three sequences have three rows of decode and the first row of prefill, in each of
        # three ways. Without a cache, the rows of prefill are the same again.
        assert all(counts[kernel] >= 2 * 3 * 3 * (3 + 1) * 3 for kernel in SITES), counts


def test_a_fault_that_only_histories_show_is_named(worker: Start) -> None:
    faults = {"mask": 0, "rotary": 0, "cached_value": 1}
    start(worker, *((name, 3, 1, f"model = made()\n{INSTRUMENT}serve(model, {name!r})") for name in faults))
    for name, layer in faults.items():
        answer = document("diff", name, "--by", "history", code=1)
        first = answer["first"]
        assert (answer["evidence"], answer["verdict"], answer["outlier"]) == ("history", "diverged", f"{name}/1")
        assert (first["kernel"] in SITES, first["layer"], first["blame"]) == (True, layer, "here_or_cache"), name


def test_another_size_of_the_batch_or_another_padding_is_never_compared(worker: Start) -> None:
    ways = {
        "size": "size=3 + number",
        "padding": "padding=1 + number",
        "side": "beside=2 * number",
        "positions": "padding=2, placed=bool(number)",
        "mask": "padding=0, beside=None if number else 0",
        "mode": "mode=(torch.no_grad, torch.inference_mode)[number]",
    }
    start(worker, *((name, 2, -1, f"model = made()\n{INSTRUMENT}serve(model, {how})") for name, how in ways.items()))
    for service in document("coverage")["services"]:
        history = service["history"]
        assert (history["rows"] > 0, history["compared"], history["unknown"]) == (True, 0, {}), service["service"]


# ---- unknown histories

X = "x = torch.randint(0, 128, (2, 5))\n"
FILLED = f"{X}cache = filled(model(x, use_cache=True))\n"
AGAIN = "model(x[:, :1], past_key_values=cache, use_cache=True)\n"
# For each case: how the model is made, its calls, and how many steps of sequences are unknown for which reasons.
UNKNOWN: dict[str, tuple[str, str, dict[str, int]]] = {
    "plain": ("made()", f"{FILLED}{AGAIN}{AGAIN}", {}),
    "embeds": ("made()", "model(inputs_embeds=torch.randn(2, 3, 64))", {"inputs": 2}),
    "labels": ("made()", f"{X}model(x, labels=x)", {"inputs": 2}),
    "attentions": ("made(attn_implementation='eager')", f"{X}model(x, output_attentions=True)", {"inputs": 2}),
    "after_embeds": (
        "made()",
        f"{X}cache = filled(model(inputs_embeds=torch.randn(2, 3, 64)))\n{AGAIN}",
        {"inputs": 4},
    ),
    "training": ("made().train()", f"{X}model(x)", {"training": 2}),
    "reordered": ("made()", f"{FILLED}cache.reorder_cache(torch.tensor([0, 1]))\n{AGAIN}{AGAIN}", {"edited": 4}),
    "cropped": ("made()", f"{FILLED}cache.crop(-1)\n{AGAIN}", {"edited": 2}),
    "selected": ("made()", f"{FILLED}cache.batch_select_indices(torch.tensor([1, 0]))\n{AGAIN}", {"edited": 2}),
    "repeated": ("made()", f"{FILLED}cache.batch_repeat_interleave(2)\nx = x.repeat(2, 1)\n{AGAIN}", {"edited": 4}),
    "written": ("made()", f"{FILLED}cache.layers[-1].values.mul_(2)\n{AGAIN}", {"edited": 2}),
    "copied": (
        "made()",
        f"import copy\ntorch.set_grad_enabled(False)\n{FILLED}cache = copy.deepcopy(cache)\n{AGAIN}",
        {"unseen": 2},
    ),
    "reset": ("made()", f"{FILLED}cache.reset()\n{AGAIN}", {}),
    "failed": (
        "made()",
        f"{FILLED}\ntry: model(x[:, :1] + 1000, past_key_values=cache)\nexcept IndexError: pass\n{AGAIN}",
        {"unseen": 2},
    ),
    "static": (
        "made()",
        f"{X}cache = StaticCache(config=model.config, max_cache_len=16)\n{AGAIN}",
        {"cache": 2},
    ),
    "sliding": (
        "MistralForCausalLM(MistralConfig(**SMALL, sliding_window=4)).eval()",
        f"{FILLED}{AGAIN}{AGAIN}",
        {"cache": 4},
    ),
    "hole": ("made()", f"{X}model(x, attention_mask=torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]]))", {"mask": 1}),
    "weights_in_mask": ("made()", f"{X}model(x, attention_mask=torch.full((2, 5), 2))", {"mask": 2}),
    "square_mask": ("made()", f"{X}model(x, attention_mask=torch.ones(2, 1, 5, 5, dtype=torch.bool))", {"mask": 2}),
    "right_padding": (
        "made()",
        f"{X}mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])\ncache = filled(model(x, attention_mask=mask))\n"
        "model(x[:, :1], attention_mask=torch.cat([mask, mask[:, :1]], 1), past_key_values=cache)",
        {"mask": 1},
    ),
    "other_padding": (
        "made()",
        f"{FILLED}mask = torch.ones(2, 6, dtype=torch.long)\nmask[1, 0] = 0\n"
        "model(x[:, :1], attention_mask=mask, past_key_values=cache)",
        {"mask": 1},
    ),
    "right_padding_unmasked": (
        "made()",
        f"{X}mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])\n"
        f"cache = filled(model(x, attention_mask=mask))\n{AGAIN}",
        {"mask": 1},
    ),
    "cropped_inside": (
        "made()",
        f"{FILLED}model.model.register_forward_hook(lambda *_: cache.crop(-1))\n{AGAIN}{AGAIN}",
        {"edited": 2},
    ),
    "moved": (
        "made()",
        f"{X}mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])\n"
        "cache = filled(model(x, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)))\n"
        "model(x[:, :1], attention_mask=torch.cat([mask, mask[:, -1:]], 1), past_key_values=cache)",
        {"positions": 1},
    ),
    "other_entry": ("made()", f"{FILLED}model.model(x[:, :1], past_key_values=cache, use_cache=True)", {"edited": 2}),
    "packed": ("made()", f"{X}model(x, position_ids=torch.tensor([[0, 1, 2, 0, 1]]))", {"positions": 2}),
    "other_positions": (
        "made()",
        f"{FILLED}model(x[:, :1], position_ids=torch.tensor([[5], [4]]), past_key_values=cache)",
        {"positions": 1},
    ),
    "attention": ("made(attn_implementation='mine')", f"{X}model(x)", {"attention": 2}),
    "experts": (
        "MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=2)).eval()",
        f"{X}model(x)",
        {"experts": 2},
    ),
    "not_examined": (
        "OPTForCausalLM(OPTConfig(vocab_size=128, hidden_size=64, ffn_dim=64, num_hidden_layers=2, "
        "num_attention_heads=4, word_embed_proj_dim=64)).eval()",
        f"{X}model(x)",
        {"model": 2},
    ),
    "own_forward": ("own(made())", f"{X}model(x)", {"model": 2}),
    "encoder": (
        "T5ForConditionalGeneration(T5Config(vocab_size=128, d_model=64, d_ff=64, num_layers=1, num_heads=4)).eval()",
        f"{X}model(input_ids=x, decoder_input_ids=x)",
        {"encoder": 2},
    ),
    "quantized": (
        "torch.ao.quantization.quantize_dynamic(made(), {torch.nn.Linear})",
        f"{X}model(x)",
        {"quantized": 2},
    ),
    "rotary": (
        "made(max_position_embeddings=8, rope_parameters={'rope_type': 'dynamic', 'rope_theta': 1e4, 'factor': 2.0})",
        f"{FILLED}{AGAIN}{AGAIN}{AGAIN}",
        {"rotary": 2},
    ),
    "device": ("made().to('meta')", "model(torch.zeros(2, 5, dtype=torch.long, device='meta'))", {"device": 2}),
    "beams": (
        "made()",
        f"{X}model.generate(x, attention_mask=torch.ones_like(x), num_beams=2, max_new_tokens=3, pad_token_id=0)",
        {"edited": 8},
    ),
}
MAKE = """
from transformers import AttentionInterface, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers import OPTConfig, OPTForCausalLM, StaticCache, T5Config, T5ForConditionalGeneration
SMALL = dict(vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)
AttentionInterface.register('mine', AttentionInterface()['sdpa'])
def own(model):
    plain = model.model.layers[0].forward
    model.model.layers[0].forward = lambda *args, **keywords: plain(*args, **keywords)
    return model
"""


def test_what_a_history_cannot_tell_is_unknown_and_counted(worker: Start) -> None:
    every = {name: f"model = {model}\n{INSTRUMENT}{calls}" for name, (model, calls, _) in UNKNOWN.items()}
    start(worker, *((name, 1, -1, source) for name, source in every.items()), before=MAKE)
    counted = {service["service"]: service["history"] for service in document("coverage")["services"]}
    assert {name: history["unknown"] for name, history in counted.items()} == {
        name: reasons for name, (_, _, reasons) in UNKNOWN.items()
    }


# ---- one worker


def test_the_model_computes_the_same_with_and_without_histories(worker: Start, prefix: str) -> None:
    source = f"""
number, bad = 0, False
model = made()
plain = serve(model) + serve(model, padding=2)
{INSTRUMENT}
again = serve(model) + serve(model, padding=2)
reported = [torch.equal(a, b) for a, b in zip(plain, again, strict=True)]
"""
    got = recorded(worker, prefix, PROGRAM + source, BRICKD_FINGERPRINTS="all", BRICKD_STRICT="1")
    assert got.reported == [True] * 24
    histories = [each for each in got.events if each["kind"] == "checked" and each["flags"] & CHECKED_HISTORY]
    assert histories
    layers = [each for each in histories if places(got.sites, [each])[0][0] == "layers.*"]
    assert {each["inputs"] for each in layers} == {1}
