"""A canary computes what a request alone would, between requests, and changes nothing.

These tests are skipped if torch is not installed.
"""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import brick_agent as brick
import pytest
from brick_agent._torch.canary import refusal
from brick_agent._torch.canary.result import SiteDigests

torch = pytest.importorskip("torch", reason="torch is not installed: .venv/bin/pip install torch==2.13.0")
nn = torch.nn
Module: Any = nn.Module
torch.set_num_threads(1)
TOKENS, FORCED = [1, 5, 3], [2, 7]
WORDS = 16


class Part(Module):  # type: ignore[misc]
    """A layer that calls a function in each forward, if it has one."""

    called: Callable[[Any], Any] | None = None  # of the class, so that a shadow calls the same

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        if (called := type(self).called) is not None:
            x = called(x)
        return x + self.mlp(x).relu()


class Whole(Module):  # type: ignore[misc]
    """A model without a cache: its second layer is of the class that a test gives."""

    def __init__(self, kind: type = Part) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.layers = nn.ModuleList([Part(), kind()])
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def part(function: Callable[[Any], Any]) -> type[Part]:
    """Return a class of layers that call a function."""
    return type("Own", (Part,), {"called": staticmethod(function)})


def model(kind: type = Part) -> Any:
    torch.manual_seed(3)
    return Whole(kind).eval()


def served(of: Any) -> Any:
    with torch.no_grad():
        return of(torch.tensor([[1, 2]]))


def watched(of: Any, share: float = 1, stuck_s: float = 60) -> Any:
    """Return the canaries of a model that has served a call."""
    found: Any = brick.canaries(of, share=share, stuck_s=stuck_s)
    found.model = of  # which would otherwise end with the last reference to it
    served(of)
    return found


def quiet(of: Any) -> Any:
    """Wait until the last call of a model is so long ago that what a canary changes is compared."""
    until(lambda: of._turns.state() is not None)
    return of


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def run(of: Any, **options: Any) -> Any:
    return of.run("one", TOKENS, FORCED, **options)


def is_canary() -> bool:
    return threading.current_thread().name == "brickd canary"


@contextmanager
def thread(function: Callable[[], object]) -> Iterator[threading.Thread]:
    one = threading.Thread(target=function)
    one.start()
    try:
        yield one
    finally:
        one.join()


# ---- what it computes --------------------------------------------------------------------------------------------


def test_a_canary_gives_the_digest_of_each_part_of_a_call_alone() -> None:
    of = model()
    got = run(watched(of))
    assert (got.name, got.end, got.reason) == ("one", "done", None)
    names = [(each.kernel, each.layer) for each in got.sites]
    assert names == [("layers.*.mlp", 0), ("layers.*.mlp", 1), ("head", None)]
    with torch.inference_mode():
        outputs = [of(torch.tensor([[*TOKENS, *FORCED[:n]]])) for n in range(3)]
    alone = digest(outputs[:1]), digest(outputs[1:])
    assert (got.sites[-1].prompt, got.sites[-1].forced) == alone


def digest(outputs: list[Any]) -> str:
    digests = SiteDigests()
    for each in outputs:
        digests.add("head", None, False, [each])
    return digests.sites()[0].prompt


def test_a_canary_is_equal_in_replicas_and_names_the_first_part_that_differs() -> None:
    of, other = model(), model()
    one, two = run(watched(of)), run(watched(other))
    assert one[2:7] == two[2:7]
    with torch.no_grad():
        other.layers[1].mlp.weight[3, 4] += 1
    three = run(watched(other))
    assert (three.input, three.model, three.context) == (one.input, one.model, one.context)
    assert [a.kernel for a, b in zip(one.sites, three.sites, strict=True) if a != b] == ["layers.*.mlp", "head"]
    assert three.sites[0] == one.sites[0]


def test_results_of_other_tokens_another_chunk_or_another_model_are_not_comparable() -> None:
    of = watched(model())
    first = run(of)
    assert run(of).input == first.input
    others = (of.run("one", [1, 5, 4], FORCED), of.run("one", [*TOKENS, 2], [7]), run(of, chunk=2))
    assert len({first.input, *(each.input for each in others)}) == 4
    torch.manual_seed(4)
    assert run(watched(Whole().eval())).model != first.model


def test_a_model_reloaded_during_a_canary_gives_no_result() -> None:
    of: Any = None
    other = {name: value + 1 for name, value in model().state_dict().items()}

    def reload(x: Any) -> Any:
        if is_canary():
            with thread(lambda: of.load_state_dict(other)):
                pass
        return x

    of = model(part(reload))
    got = run(watched(of))
    assert (got.end, got.reason) == ("refused", "reloaded: the parameters changed while the canary ran")


@pytest.mark.parametrize("mode", ["inference", "gradients", "no gradients", "autocast"])
def test_a_canary_computes_in_the_modes_of_the_last_call(mode: str) -> None:
    seen = []

    def look(x: Any) -> Any:
        cast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
        seen.append((is_canary(), torch.is_inference_mode_enabled(), torch.is_grad_enabled(), cast))
        return x

    of = model(part(look))
    found = watched(of)
    with {
        "inference": torch.inference_mode(),
        "gradients": torch.enable_grad(),
        "no gradients": torch.no_grad(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
    }[mode]:
        of(torch.tensor([[1]]))
    got = run(found)
    assert (seen[-1][0], seen[-1][1:]) == (True, seen[1][1:])
    assert ("bfloat16" in got.context, "inference mode" in got.context) == (mode == "autocast", mode == "inference")


# ---- only in gaps ------------------------------------------------------------------------------------------------


def test_a_slice_begins_only_while_no_call_is_in_flight() -> None:
    begun, go, slices = threading.Event(), threading.Event(), []

    def wait(x: Any) -> Any:
        if is_canary():
            slices.append(go.is_set())
        elif waits:
            begun.set()
            go.wait()
        return x

    waits: list[bool] = []
    of = model(part(wait))
    found = watched(of)
    waits.append(True)
    with thread(lambda: served(of)):
        begun.wait()
        refused = run(found, timeout_s=0.05)
        go.set()
    waits.clear()
    assert (refused.end, refused.reason, slices) == ("refused", "timeout: not done after 0.05 s", [])
    assert run(found).end == "done"
    assert slices == [True, True, True]


def test_a_call_waits_for_no_slice_and_no_further_slice_begins_during_the_call() -> None:
    begun, go, inside, leave, slices = *(threading.Event() for _ in range(4)), []

    def wait(x: Any) -> Any:
        if is_canary():
            slices.append("slice")
            begun.set()
            go.wait()
        elif begun.is_set() and not go.is_set():
            inside.set()
            leave.wait()
        return x

    of = model(part(wait))
    found = watched(of)
    with thread(lambda: run(found)):
        begun.wait()
        leave.set()
        served(of)  # ends, although a slice runs
        leave.clear()
        inside.clear()
        before = found._turns._next_s
        with thread(lambda: served(of)):
            inside.wait()
            go.set()
            until(lambda: found._turns._next_s != before)  # the slice ended, the call has not
            assert not found._turns.may_begin()
            assert slices == ["slice"]
            leave.set()
    assert len(slices) == 3


def test_the_cache_of_autocast_is_left_to_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(model())
    cleared: list[int] = []
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: cleared.append(1))
    assert run(found).end == "done"
    assert cleared == []


def test_a_call_that_raises_is_no_longer_in_flight() -> None:
    of = model()
    found = watched(of)
    with pytest.raises(IndexError):
        of(torch.tensor([[WORDS]]))
    assert not found._turns.gate.calls
    assert run(found).end == "done"


def test_modes_that_cannot_be_read_do_not_fail_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    of = model()
    found = brick.canaries(of)
    expected = served(of)

    def missing() -> bool:
        raise AttributeError

    monkeypatch.setattr(torch, "is_inference_mode_enabled", missing)
    assert torch.equal(served(of), expected)
    assert run(found).reason.startswith("unserved: ")


def test_calls_of_the_model_inside_of_a_model_count_too() -> None:
    class Outer(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Whole()
            self.seen: Any = None

        def forward(self, ids: Any) -> Any:
            return self.model(ids)

    of = Outer().eval()
    found = brick.canaries(of)
    of.model(torch.tensor([[1]]))  # an engine that keeps the head apart calls the inner model
    assert found._turns.gate.last is not None


def test_slices_take_at_most_their_share_of_the_time() -> None:
    def wait(x: Any) -> Any:
        time.sleep(0.02 * is_canary())
        return x

    found = watched(model(part(wait)), share=0.5)
    begun = time.monotonic()
    got = run(found)
    again = run(found)
    took = time.monotonic() - begun
    assert got.slices == again.slices == 5
    # The last slice is not followed by a pause.
    assert got.spent_s + again.spent_s - again.longest_s <= 0.5 * took
    assert inspect.signature(brick.canaries).parameters["share"].default == 0.005


def test_only_one_slice_runs_at_a_time_in_a_process() -> None:
    inside: list[int] = []
    most = []

    def look(x: Any) -> Any:
        if is_canary():
            inside.append(1)
            time.sleep(0.005)
            most.append(len(inside))
            inside.pop()
        return x

    one, two = watched(model(part(look))), watched(model(part(look)))
    with thread(lambda: run(one)), thread(lambda: run(two)):
        pass
    assert most == [1] * 6


def test_there_is_a_thread_only_while_a_canary_runs() -> None:
    seen: list[int] = []

    def look(x: Any) -> Any:
        seen.append(sum(each.name == "brickd canary" for each in threading.enumerate()))
        return x

    before = threading.enumerate()
    found = watched(model(part(look)))
    assert threading.enumerate() == before
    assert run(found).end == "done"
    assert threading.enumerate() == before
    assert seen == [0, 1, 1, 1]


# ---- what it must not change -------------------------------------------------------------------------------------


def test_a_forward_that_draws_is_refused_before_it_draws() -> None:
    of = model(part(lambda x: x + torch.rand(1) if is_canary() else x))
    found = watched(of)
    before = torch.get_rng_state()
    got = run(found)
    assert (got.end, got.reason) == ("refused", "random: aten.rand.default draws random numbers")
    assert torch.equal(torch.get_rng_state(), before)
    hides = watched(model(part(hide)))
    assert run(hides).reason in [
        f"random: aten.{name} draws random numbers" for name in ("dropout.default", "bernoulli_.float")
    ]
    assert torch.equal(torch.get_rng_state(), before)

    assert watched(Hiding().eval()).run("one", TOKENS).reason.startswith("random: ")


def hide(x: Any) -> Any:
    try:
        return nn.functional.dropout(x, 0.5, training=is_canary())
    except Exception:
        return x


class Hiding(Whole):
    """A model whose last operator fails in secret."""

    def forward(self, ids: Any) -> Any:
        return hide(super().forward(ids))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_dropout_that_is_off_does_not_draw(mode: Callable[[], Any]) -> None:
    def attend(x: Any) -> Any:
        x = nn.functional.dropout(x, 0.5, training=False)
        many = x[None]
        return nn.functional.scaled_dot_product_attention(many, many, many, dropout_p=0.0)[0]

    of = model(part(attend))
    found = watched(of)
    with mode():
        of(torch.tensor([[1, 2]]))
    assert run(found)[1:3] == ("done", None)


@pytest.mark.parametrize("kind", ["Python", "numpy"])
def test_a_canary_that_changes_other_random_state_ends_all_canaries(kind: str) -> None:
    numpy = pytest.importorskip("numpy")
    draw = random.random if kind == "Python" else numpy.random.random
    drawn = []

    def sample(x: Any) -> Any:
        if is_canary():
            drawn.append(draw())
        return x

    found = quiet(watched(model(part(sample))))
    (random if kind == "Python" else numpy.random).seed(7)
    got = run(found)
    reason = f"random: the random state of {kind} changed during a canary"
    assert (got.end, got.reason, len(drawn)) == ("off", reason, 1)
    assert run(found)[:3] == ("one", "off", reason)
    after = draw()
    (random if kind == "Python" else numpy.random).seed(7)
    assert [draw(), draw()] == [*drawn, after]  # the state was not written back


class Counts(Part):
    """A layer that keeps something of each call."""

    how = "buffer"
    calls: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.n, self.all, self.tree = 0, [0], {"a": ([1], {2})}
        self.box = Box()

    def forward(self, x: Any) -> Any:
        if self.how == "buffer":
            self.calls.add_(1)
        elif self.how == "replaced buffer":
            self.calls = self.calls + 1
        elif self.how == "attribute":
            self.n += 1
        elif self.how == "list":
            self.all.append(1)
        elif self.how == "parameter":
            self.mlp.weight.data.add_(1)
        elif self.how == "tree":
            self.tree["a"][0].append(1)
        else:
            self.box.n += 1
        return super().forward(x)

    def kept(self) -> list[Any]:
        return [self.calls.item(), self.n, list(self.all), self.box.n, self.mlp.weight.sum().item()]


class Box:
    """An object in an attribute."""

    n = 0

    def __init__(self) -> None:
        self.n = 0


@pytest.mark.parametrize("how", ["buffer", "replaced buffer", "attribute", "list", "parameter"])
def test_a_model_that_keeps_something_of_a_call_is_refused_and_not_changed(how: str) -> None:
    kind = type("Kept", (Counts,), {"how": how})
    of = model(kind)
    found = watched(of)
    before = of.layers[1].kept()
    got = run(quiet(found))
    word = "writes to a tensor" if how in ("buffer", "parameter") else "layers.1 keeps values that a call changes"
    assert got.end == "refused"
    assert word in got.reason
    assert of.layers[1].kept() == before
    assert found.off is None


def test_a_canary_that_changed_the_model_ends_all_canaries() -> None:
    of: Any = None

    def change(x: Any) -> Any:
        if is_canary():
            of.n = 1
        return x

    of = model(part(change))
    found = quiet(watched(of))
    reason = "changed: a canary changed the model"
    assert run(found)[:3] == run(found)[:3] == ("one", "off", reason)


@pytest.mark.parametrize("how", ["object", "tree"])
def test_what_a_shadow_shares_with_the_model_is_compared_too(how: str) -> None:
    of = model(type("Kept", (Counts,), {"how": how}))
    got = run(quiet(watched(of)))
    assert (got.end, got.reason) == ("off", "changed: a canary changed layers.1")
    # A call and a slice changed it.
    assert (of.layers[1].box.n, len(of.layers[1].tree["a"][0])) == ((2, 1) if how == "object" else (0, 3))


def test_a_change_by_a_call_is_not_blamed_on_the_canary() -> None:
    of: Any = None

    def call(x: Any) -> Any:
        if is_canary():
            of.n = random.random()
            with thread(lambda: served(of)):
                pass
        return x

    of = model(part(call))
    assert run(quiet(watched(of))).end == "done"


def test_random_numbers_right_after_a_call_are_not_blamed_on_the_canary() -> None:
    found = watched(model(part(lambda x: x + 0 * random.random())))
    found._turns.gate.ended = time.monotonic() + 3600  # so long does it stay "right after"
    assert run(found).end == "done"


def test_other_threads_do_not_see_that_operators_are_looked_at() -> None:
    from torch.utils._python_dispatch import is_in_torch_dispatch_mode

    seen = []

    def look(x: Any) -> Any:
        seen.append((is_canary(), is_in_torch_dispatch_mode()))
        return x

    assert run(watched(model(part(look)))).end == "done"
    assert set(seen) == {(False, False), (True, False)}
    assert torch.utils._python_dispatch._len_torch_dispatch_stack() == 0


# ---- when it is refused ------------------------------------------------------------------------------------------


def compiled(of: Any) -> None:
    of.layers[0]._compiled_call_impl = of.layers[0]._call_impl  # as `compile` does; its import takes half a second


def hidden(of: Any) -> None:
    of.layers[0].above = [{"model": of}]


def own_forward(of: Any) -> None:
    of.layers[0].forward = of.layers[0].forward


def inference(of: Any) -> None:
    with torch.inference_mode():
        of.layers[0].register_buffer("kept", torch.zeros(1))


def scripted(of: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch no longer recommends it
        of.head = torch.jit.script(of.head)


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "training": (lambda of: of.layers[1].mlp.train(), "training: layers.1.mlp (Linear) is in training mode"),
    "compiled": (compiled, "compiled: layers.0 (Part)"),
    "script": (scripted, "compiled: head (RecursiveScriptModule)"),
    "copies": (lambda of: setattr(of, "head", nn.DataParallel(of.head).eval()), "compiled: head (DataParallel)"),
    "hooks": (lambda of: of.head.register_forward_hook(lambda *_: None), "hooks: head has forward hooks"),
    "first hooks": (lambda of: of.head.register_forward_pre_hook(lambda *_: None), "hooks: head has forward hooks"),
    "forward": (own_forward, "stateful: layers.0 has a forward of its own"),
    "hidden": (hidden, "stateful: layers.0.above refers to a module"),
    "method": (lambda of: setattr(of, "call", of.head.forward), "stateful: the model.call refers to a module"),
    "device": (lambda of: of.head.to("meta"), "device: the tensors are on cpu, meta, not in host memory"),
    "no ids": (lambda of: setattr(of, "embed", nn.Identity().eval()), "tokens: the model has no embedding, so its ids"),
    "inference": (inference, "stateful: layers.0 keeps a value whose changes cannot be seen"),
    "cache": (lambda of: setattr(of, "kv_cache", {}), "stateful: the model keeps a value whose changes cannot be seen"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_model_is_refused_with_a_reason(what: str) -> None:
    of = model()
    found = watched(of)
    REFUSED[what][0](of)
    got = run(found)
    assert (got.end, got.reason[: len(REFUSED[what][1])]) == ("refused", REFUSED[what][1])
    assert got.sites == ()
    assert found.off is None


def test_a_model_that_was_not_called_is_refused() -> None:
    assert run(brick.canaries(model())).reason.startswith("unserved: ")


def test_a_model_with_a_cache_must_return_one_cache() -> None:
    class Cached(Whole):
        def forward(self, ids: Any, past_key_values: Any = None, use_cache: bool = False) -> Any:
            return {"logits": super().forward(ids), **{f"past_key_value_{n}": [1] for n in range(returned)}}

    returned = 1
    found = watched(Cached().eval())
    for returned in (0, 2):
        assert run(found).reason == f"cache: the model returned {returned} caches"
    returned = 1
    assert run(found, chunk=2)[1:3] == ("done", None)


def test_hooks_for_all_modules_are_refused() -> None:
    found = watched(model())
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert run(found).reason == "hooks: torch has forward hooks for all modules"
    finally:
        hook.remove()


def test_a_model_of_several_ranks_is_refused() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    found = watched(model())
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        assert run(found).reason == "ranks: the model has 2 ranks"
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("bad", [-1, WORDS, True, 1.0, "1", None, [1]])
def test_an_id_out_of_the_vocabulary_is_refused(bad: Any) -> None:
    found = watched(model())
    for tokens, forced in (([1, bad], [2]), ([1], [bad])):
        got = found.run("one", tokens, forced)
        assert (got.end, got.reason) == ("refused", f"tokens: {bad!r} is not an id from 0 to 15")
    assert found.run("one", [0, WORDS - 1]).end == "done"


def test_the_number_of_tokens_is_limited() -> None:
    found = watched(model())
    most = refusal.TOKENS_MAX
    assert found.run("one", [], [1]).reason == "tokens: a canary needs at least one token"
    assert found.run("one", [1] * (most - 1), [1]).end == "done"
    assert found.run("one", [1] * most, [1]).reason == f"tokens: {most + 1} tokens, at most {most} are possible"
    assert found.run("one", 7).end == "refused"  # not even a list


@pytest.mark.parametrize(
    "attributes",
    [
        {"original_max_seq_len": 4},
        {"config": {"max_position_embeddings": 4}},
        {"config": {"n_positions": 4}},
        {"config": {"max_position_embeddings": 9, "rope_parameters": {"original_max_position_embeddings": 4}}},
        {"config": {"max_position_embeddings": 9, "original_max_position_embeddings": 4}},
        {"config": {"rope_parameters": {"full_attention": {"original_max_position_embeddings": 4}}}},
        {"config": {"max_position_embeddings": 9, "rope_scaling": {"original_max_position_embeddings": 4}}},
    ],
)
def test_a_canary_longer_than_the_original_positions_is_refused(attributes: dict[str, Any]) -> None:
    of = model()
    found = watched(of)
    for name, value in attributes.items():
        held = type("Config", (), value) if isinstance(value, dict) else value
        setattr(of.layers[0], name, held)
    assert found.run("one", [1, 2], [3, 4]).end == "done"
    assert found.run("one", [1, 2], [3, 4, 5]).reason == "length: 5 tokens, but positions of the model end at 4"


@pytest.mark.parametrize(("chunk", "end"), [(0, "refused"), (1, "done"), (64, "done"), (65, "refused")])
def test_a_slice_computes_1_to_64_tokens(chunk: int, end: str) -> None:
    assert run(watched(model()), chunk=chunk).end == end


def test_memory_below_twice_the_need_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {64 << 10} kB\n")
    monkeypatch.setattr(refusal, "_MEMINFO", str(tmp_path / "meminfo"))
    refusal.check_memory(0)
    refusal.check_memory(32 << 20)
    with pytest.raises(refusal.RefusalError, match="memory: less than 64 MiB are left, twice the need of a slice"):
        refusal.check_memory((32 << 20) + 1)
    slices: list[int] = []

    def need(x: Any) -> Any:
        slices.append(1)
        return x + torch.zeros((33 << 20) if is_canary() else 1, dtype=torch.int8)[0]

    got = run(watched(model(part(need))))
    assert (got.end, got.reason.partition(":")[0], len(slices)) == ("refused", "memory", 2)
    (tmp_path / "meminfo").write_text("MemAvailable: 65535 kB\n")
    assert run(watched(model())).reason.startswith("memory: ")


def test_a_view_of_a_parameter_needs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text(f"MemAvailable: {64 << 10} kB\n")
    monkeypatch.setattr(refusal, "_MEMINFO", str(tmp_path / "meminfo"))
    big = torch.zeros(33 << 20, 1, dtype=torch.int8)
    assert run(watched(model(part(lambda x: x + big.t()[0, 0])))).end == "done"


def test_a_forward_that_raises_is_reported_and_canaries_go_on() -> None:
    fails = ["no\nwords"]

    def fail(x: Any) -> Any:
        if is_canary() and fails:
            raise OSError(fails[0])
        return x

    found = watched(model(part(fail)))
    got = run(found)
    assert (got.end, got.reason) == ("refused", "raised: OSError: no")
    fails[0] = "x" * 300
    assert run(found).reason == "raised: OSError: ".ljust(200, "x")
    fails.clear()
    assert run(found).end == "done"


def test_a_forward_that_hangs_is_reported_as_stuck_and_no_canary_runs_any_more() -> None:
    go = threading.Event()
    of = model(part(lambda x: (go.wait() if is_canary() else None, x)[1]))
    found = watched(of, stuck_s=0.05)
    got = run(found)
    assert (got.end, got.reason) == ("stuck", "stuck: a slice of one has run for more than 0.05 s")
    assert torch.equal(served(of), served(of))
    go.set()
    until(lambda: all(each.name != "brickd canary" for each in threading.enumerate()))
    assert run(found)[:3] == ("one", "off", got.reason)


def test_a_pause_between_slices_is_not_a_slice_that_hangs() -> None:
    def wait(x: Any) -> Any:
        time.sleep(0.02 * is_canary())
        return x

    # The pause after the slice is longer than 0.3 s.
    assert watched(model(part(wait)), share=0.05, stuck_s=0.3).run("one", [1]).end == "done"


def test_a_slice_that_hangs_leaves_no_thread_of_another_model() -> None:
    go = threading.Event()
    one = watched(model(part(lambda x: (go.wait() if is_canary() else None, x)[1])), stuck_s=0.05)
    other = watched(model())
    before = threading.enumerate()
    assert run(one).end == "stuck"
    assert run(other, timeout_s=0.05).reason == "timeout: not done after 0.05 s"
    until(lambda: len(threading.enumerate()) == len(before) + 1)
    go.set()
    until(lambda: threading.enumerate() == before)
    assert run(other).end == "done"


@pytest.mark.parametrize("bad", [0, 1.01, math.nan, "1"])
def test_a_share_that_is_not_above_0_and_at_most_1_allows_no_canary(bad: Any) -> None:
    found = brick.canaries(model(), share=bad)
    assert run(found).end == "off"
    assert found.off
    assert brick.canaries(object()).off


# ---- the model stays the host's ----------------------------------------------------------------------------------


def test_a_second_call_returns_the_same_object() -> None:
    of = model()
    assert brick.canaries(of) is brick.canaries(of)
    assert brick.canaries(of) is not brick.canaries(model())


def test_copies_and_pickles_are_not_counted() -> None:
    of = model()
    found = brick.canaries(of)
    saved = io.BytesIO()
    torch.save(of, saved)
    saved.seek(0)
    for each in (copy.deepcopy(of), torch.load(saved, weights_only=False), pickle.loads(pickle.dumps(of.head))):
        assert not set(vars(each)) & {"_call_impl", "__deepcopy__", "__getstate__"}
        if isinstance(each, Whole):
            served(each)
    assert found._turns.gate.last is None


def test_uninstrument_ends_canaries_and_restores_the_model() -> None:
    of = model()
    before = {name: list(vars(each)) for name, each in of.named_modules()}
    found = watched(of)
    brick.uninstrument(of)
    assert {name: list(vars(each)) for name, each in of.named_modules()} == before
    assert run(found)[1:3] == ("off", "uninstrumented: call brick.canaries again")
    again = watched(of)
    assert again is not found
    assert run(again).end == "done"


def test_uninstrument_during_a_canary_ends_it() -> None:
    of: Any = None

    def remove(x: Any) -> Any:
        if is_canary():
            brick.uninstrument(of)
        return x

    of = model(part(remove))
    assert run(watched(of))[1:3] == ("off", "uninstrumented: call brick.canaries again")


def test_a_result_can_be_pickled() -> None:
    got = run(watched(model()))
    assert pickle.loads(pickle.dumps(got)) == got
