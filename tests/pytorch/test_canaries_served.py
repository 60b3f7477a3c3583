"""Canaries next to a server: nothing of them is recorded, and what is served stays the same, bit for bit.

These tests are skipped if torch is not installed.
"""

from __future__ import annotations

import textwrap

import pytest
from checksums import Left, recorded
from faults import Start
from recorded import summaries

pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")

MODEL = """
import torch, warnings
from torch import nn
warnings.simplefilter("ignore")
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Linear(8, 8)
    def forward(self, x): return x + self.mlp(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 16)
    def forward(self, ids):
        x = self.embed(ids)
        for each in self.layers: x = each(x)
        return self.head(x)
torch.manual_seed(3)
model = Model().eval()
ids = torch.tensor([[1, 2, 3]])
"""


def left(worker: Start, prefix: str, source: str) -> Left:
    return recorded(worker, prefix, MODEL + textwrap.dedent(source), BRICKD_FINGERPRINTS="all")


def test_a_canary_is_neither_timed_nor_recorded(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        brick.instrument(model, watch_weights=False)
        found = brick.canaries(model, share=1)
        model(ids)
        reported = [found.run("one", [1, 2], [3]).end for _ in range(2)]
        model(ids)
        reported.append("torch._dynamo" in sys.modules)  # which takes a second to import
        """,
    )
    assert got.reported == ["done", "done", False]
    assert {row["count"] for row in summaries(got.reading).values()} == {2}
    assert len([each for each in got.events if each["kind"] == "checked"]) > 0
    assert got.reading.process["lanes_refused"] == 0
    assert sum(lane["opened"] for _, lane, _ in got.reading.lanes) == 1  # no lane for the canary's thread


def test_a_model_whose_forward_records_itself_gets_no_further_canary(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        class Timed(Block):
            def forward(self, x):
                with brick.span("own"): return super().forward(x)
        model.layers[1] = Timed().eval()
        found = brick.canaries(model, share=1)
        model(ids)
        reported = [found.run("one", [1, 2], [3])[:3] for _ in range(2)]
        """,
    )
    assert got.reported == [["one", "off", "records: the forward records spans or checksums of its own"]] * 2


def test_a_model_can_be_instrumented_before_and_after_canaries_are_allowed(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        def keys(): return [list(vars(each)) for each in model.modules()]
        before = keys()
        brick.instrument(model, watch_weights=False)
        found = brick.canaries(model, share=1)
        brick.instrument(model, watch_weights=False); brick.instrument(model, watch_weights=False)
        model(ids)
        reported = [found.run("one", [1, 2], [3]).end, found is brick.canaries(model)]
        brick.uninstrument(model)
        reported += [found.run("one", [1, 2], [3]).end, keys() == before]
        """,
    )
    assert got.reported == ["done", True, "off", True]
    assert {row["count"] for row in summaries(got.reading).values()} == {1}


def test_a_forked_child_allows_canaries_again(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        brick.init()
        found = brick.canaries(model, share=1)
        model(ids)
        read, write = os.pipe()
        if os.fork() == 0:
            before = found.run("one", [1, 2])
            again = brick.canaries(model, share=1)
            model(ids)
            os.write(write, f"{before.end} {before.reason}|{again.run('one', [1, 2]).end}".encode())
            os._exit(0)
        os.wait()
        reported = [os.read(read, 1000).decode(), found.run("one", [1, 2]).end]
        """,
    )
    assert got.reported == ["off fork: call brick.canaries in this process|done", "done"]


def test_a_child_that_is_forked_during_a_slice_can_run_canaries(worker: Start, prefix: str) -> None:
    got = left(
        worker,
        prefix,
        """
        import threading
        brick.init()
        begun, go = threading.Event(), threading.Event()
        class Waits(Block):
            def forward(self, x):
                if threading.current_thread().name == "brickd canary" and not go.is_set(): begun.set(); go.wait()
                return super().forward(x)
        model.layers[1] = Waits().eval()
        found = brick.canaries(model, share=1)
        model(ids)
        thread = threading.Thread(target=lambda: found.run("one", [1, 2]))
        thread.start()
        begun.wait()
        read, write = os.pipe()
        if os.fork() == 0:
            go.set()
            before = found.run("one", [1, 2]).end
            again = brick.canaries(model, share=1)
            model(ids)
            os.write(write, f"{before} {again.run('one', [1, 2], timeout_s=20).end}".encode())
            os._exit(0)
        os.wait()
        go.set(); thread.join()
        reported = os.read(read, 1000).decode()
        """,
    )
    assert got.reported == "off done"


# ---- transformers ------------------------------------------------------------------------------------------------

LLAMA = """
import threading, torch, transformers, warnings
from transformers import LlamaConfig, LlamaForCausalLM
warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
brick.init()
def llama(**more):
    torch.manual_seed(3)
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                         vocab_size=50, max_position_embeddings=64, eos_token_id=None, **more)
    return LlamaForCausalLM(config).eval()
ids = torch.arange(1, 9)[None]
def serve(model, **how):
    torch.manual_seed(5)
    texts = []
    for n in range(3):
        texts.append(model.generate(ids + n, pad_token_id=0, **how).tolist())
    return texts
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
CASES = {
    "sampling": ({}, dict(max_new_tokens=12, do_sample=True)),
    "static cache": ({}, dict(max_new_tokens=12, do_sample=False, cache_implementation="static")),
    "dynamic rotary": (dict(rope_parameters=DYNAMIC), dict(max_new_tokens=70, do_sample=False)),
}
def served(case, canaries):
    made, how = CASES[case]
    model = llama(**made)
    if not canaries:
        return serve(model, **how), []
    found = brick.canaries(model, share=1)
    serve(model, max_new_tokens=1)
    ends, stop = [], threading.Event()
    def again():
        while not stop.is_set() or not ends:
            ends.append(found.run("one", [1, 2, 3, 4], [5, 6], chunk=2)[1:3])
    thread = threading.Thread(target=again)
    thread.start()
    texts = serve(model, **how)
    stop.set(); thread.join()
    return texts, sorted(set(ends))
"""


def transformers(worker: Start, prefix: str, source: str) -> Left:
    pytest.importorskip("transformers", reason="transformers are not installed: .venv/bin/pip install '.[torch]'")
    return recorded(worker, prefix, LLAMA + textwrap.dedent(source))


@pytest.mark.ci
def test_served_tokens_are_the_same_with_canaries(worker: Start, prefix: str) -> None:
    got = transformers(worker, prefix, "reported = [[served(case, one) for one in (False, True)] for case in CASES]")
    for (plain, _), (texts, ends) in got.reported:
        assert texts == plain
        assert ["done", None] in ends
    sampling, static, dynamic = ({end for end, _ in ends} for _, (_, ends) in got.reported)
    assert sampling == static == {"done"}
    assert dynamic <= {"done", "refused"}  # while a long request has changed the rotary embedding


@pytest.mark.ci
def test_the_cache_of_a_canary_gives_what_a_request_alone_gets(worker: Start, prefix: str) -> None:
    got = transformers(
        worker,
        prefix,
        """
        import hashlib
        from brick_agent._torch.canary.result import SiteDigests
        model = llama()
        brick.instrument(model, watch_weights=False)
        found = brick.canaries(model, share=1)
        def outputs():
            cache, given = None, []
            for part in ([1, 2], [3], [4], [5]):
                name = "cache" if "cache" in type(model).forward.__wrapped__.__code__.co_varnames else "past_key_values"
                result = model(input_ids=torch.tensor([part]), use_cache=True, **{name: cache})
                cache, logits = result[name], result.logits
                given.append(logits)
            return given
        digests = SiteDigests()
        with torch.inference_mode():
            for n, each in enumerate(outputs()): digests.add("lm_head", None, n > 1, [each])
        got = found.run("one", [1, 2, 3], [4, 5], chunk=2)
        reported = [got.end, got.reason, got.sites[-1] == digests.sites()[0], len(got.sites), got.slices]
        """,
    )
    assert got.reported == ["done", None, True, 8, 6]


@pytest.mark.ci
def test_a_dynamic_rotary_embedding_that_has_grown_is_refused(worker: Start, prefix: str) -> None:
    got = transformers(
        worker,
        prefix,
        """
        model = llama(rope_parameters=DYNAMIC)
        found = brick.canaries(model, share=1)
        with torch.no_grad(): model(ids.repeat(1, 10))
        grown = model.model.rotary_emb.inv_freq.clone()
        one = found.run("one", [1, 2])
        long = found.run("one", [1] * 65)
        reported = [one[1:3], long[1:3], torch.equal(grown, model.model.rotary_emb.inv_freq)]
        """,
    )
    assert got.reported == [
        ["refused", "stateful: model.rotary_emb keeps values that a call changes"],
        ["refused", "length: 65 tokens, but positions of the model end at 64"],
        True,
    ]


@pytest.mark.ci
def test_a_canary_names_the_part_in_which_a_fault_begins(worker: Start, prefix: str) -> None:
    got = transformers(
        worker,
        prefix,
        """
        import inspect
        def weight(model): model.model.layers[1].mlp.up_proj.weight.data[5, 7] += 0.5
        def swapped(model): rows = model.model.layers[1].self_attn.o_proj.weight.data; rows[[1, 2]] = rows[[2, 1]]
        def epsilon(model): model.model.layers[0].post_attention_layernorm.variance_epsilon = 1e-3
        def rotary(model): model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq * 1.001
        def mask(model):  # in decode, layer 1 does not attend to the first token
            kind = type(model.model.layers[1].self_attn)
            name = "cache" if "cache" in inspect.signature(kind.forward).parameters else "past_key_values"
            class Short(kind):
                def forward(self, hidden_states, **more):
                    seen = more[name].get_seq_length(1) if more.get(name) is not None else 0
                    if hidden_states.shape[1] == 1 and seen > 1:
                        more["attention_mask"] = torch.zeros(1, 1, 1, seen + 1)
                        more["attention_mask"][..., 0] = float("-inf")
                    return super().forward(hidden_states, **more)
            model.model.layers[1].self_attn.__class__ = Short
        def result(damage=lambda model: None):
            model = llama()
            damage(model)
            found = brick.canaries(model, share=1)
            with torch.inference_mode(): model(ids)
            return found.run("one", [1, 2, 3, 4, 5, 6, 7, 8], [9, 10], chunk=4)
        golden, reported = result(), []
        for damage in (weight, swapped, epsilon, rotary, mask):
            found = result(damage)
            first = next(a for a, b in zip(found.sites, golden.sites) if a != b)
            other = next(b for a, b in zip(found.sites, golden.sites) if a != b)
            comparable = (found.input, found.model, found.context) == (golden.input, golden.model, golden.context)
            reported.append([comparable, *first[:2], first.prompt != other.prompt, first.forced != other.forced])
        reported.append(result().sites == golden.sites)
        """,
    )
    assert got.reported == [
        [True, "layers.*.mlp", 1, True, True],
        [True, "layers.*.self_attn", 1, True, True],
        [True, "layers.*.mlp", 0, True, True],
        [True, "layers.*.self_attn", 0, True, True],
        [True, "layers.*.self_attn", 1, False, True],
        True,
    ]
