"""Which parts of a model are timed, and which tensors are found in their arguments.

The tests need no torch, because the code uses only a few methods of torch's modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from brick_agent._torch import call_tensors, module_selection
from hypothesis import given
from hypothesis import strategies as st


class Module:
    """Has the methods of a torch module that the code uses."""

    def __init__(self, **children: Any) -> None:
        self.own = children

    def forward(self) -> None: ...

    def children(self) -> Iterator[Module]:
        return iter(self.own.values())

    def parameters(self) -> Iterator[int]:
        yield 1

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self.own.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)


class Linear(Module): ...


class RMSNorm(Module): ...


class Attention(Module): ...


class Activation(Module):
    def parameters(self) -> Iterator[int]:
        return iter(())


class Layers(Module):
    forward = None  # type: ignore[assignment]


def block() -> Module:
    return Module(
        input_layernorm=RMSNorm(),
        self_attn=Attention(q_proj=Linear(), o_proj=Linear()),
        post_attention_layernorm=RMSNorm(),
        mlp=Module(up=Linear(), act=Activation()),
    )


def llama(layers: int) -> Module:
    inside = Layers(**{str(n): block() for n in range(layers)})
    return Module(model=Module(embed_tokens=Linear(), layers=inside, norm=RMSNorm()), lm_head=Linear())


def names(found: list[module_selection.Part]) -> list[tuple[str, int | None]]:
    return [(part.name, part.layer) for part in found]


@pytest.mark.parametrize(
    ("qualified", "name", "layer"),
    [
        ("model.layers.17.mlp", "layers.*.mlp", 17),
        ("_orig_mod.model.layers.0", "layers.*", 0),
        ("module.transformer.h.3.attn", "transformer.h.*.attn", 3),
        ("layers.3.experts.5.w1", "layers.*.experts.5.w1", 3),
        ("lm_head", "lm_head", None),
        ("model", "model", None),
        ("0", "*", 0),
        ("layers.²", "layers.²", None),
    ],
)
def test_a_part_is_named_by_its_path_without_its_layer_number(qualified: str, name: str, layer: int | None) -> None:
    assert module_selection.called(qualified) == (name, layer)


def test_the_most_informative_parts_are_chosen() -> None:
    found = names(module_selection.chosen(llama(2), 64))
    each = [(f"layers.*{name}", layer) for name in (".self_attn", ".mlp") for layer in (0, 1)]
    assert found == [("lm_head", None), *each, ("model", None), ("layers.*", 0), ("layers.*", 1)]


def test_modules_with_attention_or_layers_are_chosen_even_without_a_norm() -> None:
    layer = Module(attention=Attention(output=Linear()), intermediate=Linear(), output=Linear())
    bert = Module(embeddings=Linear(), encoder=Module(layer=Layers(**{"0": layer})), pooler=Linear())
    assert names(module_selection.chosen(Module(bert=bert, classifier=Linear()), 64)) == [
        ("classifier", None), ("bert.encoder.layer.*.attention", 0), ("bert", None), ("bert.encoder.layer.*", 0),
    ]  # fmt: skip


def test_categories_are_guessed_but_not_for_parts_of_an_attention() -> None:
    found = {part.name: part.category for part in module_selection.parts(llama(1))}
    assert {name: kind for name, kind in found.items() if kind} == {
        "layers.*.self_attn": "attention",
        "layers.*.mlp": "ffn",
        "layers.*.input_layernorm": "norm",
        "layers.*.post_attention_layernorm": "norm",
        "norm": "norm",
    }


@pytest.mark.parametrize(
    ("name", "kind", "category"),
    [
        ("mlp", "Qwen3MoeSparseMoeBlock", "ffn"),
        ("mlp", "Qwen3MoeMLP", "ffn"),
        ("block_sparse_moe", "MixtralSparseMoeBlock", "ffn"),
        ("ff", "DeepseekV3MoE", "ffn"),
        ("feed_forward", "Llama4TextMoe", "ffn"),
        ("experts", "Experts", "ffn"),
        ("0", "Qwen3MoeDecoderLayer", None),
        ("model", "OlmoeModel", None),
        ("self_attn", "Qwen3MoeAttention", "attention"),
        ("ln_1", "LayerNorm", "norm"),
    ],
)
def test_model_specific_names_have_their_category(name: str, kind: str, category: str | None) -> None:
    assert module_selection.category(name, kind) == category


@given(st.integers(1, 40), st.integers(0, 100))
def test_no_more_parts_than_the_limit_are_chosen_and_none_twice(layers: int, most: int) -> None:
    found = names(module_selection.chosen(llama(layers), most))
    assert len(found) == len(set(found)) == min(most, 2 + 3 * layers)


def test_of_many_layers_distant_ones_are_chosen() -> None:
    found = names(module_selection.chosen(llama(32), 40))
    mlps = [layer for name, layer in found if name == "layers.*.mlp"]
    assert (mlps[0], mlps[-1], len(mlps)) == (0, 31, 7)
    assert all(5 <= b - a <= 6 for a, b in pairwise(mlps) if a is not None and b is not None)


def test_a_pattern_replaces_the_choice() -> None:
    assert names(module_selection.chosen(llama(2), 64, ("layers.*.self_attn.?_proj",))) == [
        (f"layers.*.self_attn.{each}_proj", layer) for each in "qo" for layer in (0, 1)
    ]
    assert module_selection.chosen(llama(2), 64, ("nothing",)) == []


class OptimizedModule(Module): ...


def test_parts_inside_a_compiled_module_are_closed() -> None:
    model = llama(2)
    assert module_selection.closed(model, 64) == []
    open_ = names(module_selection.chosen(model, 64))
    whole = OptimizedModule(_orig_mod=model)
    assert names(module_selection.chosen(whole, 64)) == [("OptimizedModule", None)]
    assert names(module_selection.closed(whole, 64)) == open_
    assert names(module_selection.closed(whole, 64, ("layers.*.mlp",))) == [("layers.*.mlp", 0), ("layers.*.mlp", 1)]
    for name, block in model.own["model"].own["layers"].own.items():
        model.own["model"].own["layers"].own[name] = OptimizedModule(_orig_mod=block)
    assert ("layers.*", 1) in names(module_selection.chosen(model, 64))
    assert ("layers.*.mlp", 1) not in names(module_selection.chosen(model, 64))
    assert ("layers.*.mlp", 1) in names(module_selection.closed(model, 64))


def test_a_model_without_parts_is_recorded_as_a_whole() -> None:
    assert names(module_selection.chosen(Linear(), 64)) == [("Linear", None)]


class DataParallel(Module):
    def __init__(self, *device_ids: int, **children: Any) -> None:
        super().__init__(**children)
        self.device_ids = device_ids


def test_a_model_on_several_devices_is_recorded_as_a_whole() -> None:
    assert ("layers.*.mlp", 0) in names(module_selection.chosen(DataParallel(0, module=llama(2)), 64))
    assert names(module_selection.chosen(DataParallel(0, 1, module=llama(2)), 64)) == [("DataParallel", None)]
    assert names(module_selection.chosen(Module(own=DataParallel(0, 1, module=llama(2))), 64)) == [("own", None)]


class Tensor:
    """Imitates a tensor."""


class DynamicCache:
    """A cache with this number of tokens for each layer."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = list(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def get_seq_length(self, layer: int = 0) -> int:
        return self.tokens[layer] if layer < len(self.tokens) else 0


class StaticCache:
    def get_seq_length(self, layer: int = 0) -> int:
        raise AssertionError("it computes with tensors to say so")


@dataclass
class Output:
    logits: Any
    past_key_values: Any = None


def test_tensors_are_found_in_nested_arguments() -> None:
    a, b, c, d, e = (Tensor() for _ in range(5))
    found = call_tensors.given(Tensor, (a, [b, (c,)]), {"mask": None, "more": {"x": d}, "out": Output(e), "eps": 1e-5})
    assert found.tensors == [a, b, c, d, e]
    assert found.plain == {"mask": "None", "eps": "1e-05"}
    assert (found.cached(), found.more) == (False, False)  # the call has a parameter for a cache, but gets no cache


@pytest.mark.parametrize(
    ("passed", "cache"),
    [
        ({}, None),
        ({"past_key_values": None}, False),
        ({"past_key_values": DynamicCache(0, 4)}, True),
        ({"past_key_values": StaticCache()}, True),
        ({"past_key_values": ((Tensor(), Tensor()),)}, True),
        ({"anything": DynamicCache(1)}, True),
        ({"past_key_values": None, "kv_cache": Tensor()}, True),
        ({"kv_cache": Tensor(), "past_key_values": None}, True),
        ({"use_cache": True}, None),
    ],
)
def test_a_cache_in_the_arguments_is_recognized_and_not_read(passed: dict[str, Any], cache: bool | None) -> None:
    found = call_tensors.given(Tensor, (), passed)
    assert (found.tensors, found.cached()) == ([], cache)


def test_a_call_that_fills_an_empty_cache_is_stateless() -> None:
    for before, layer, after, cached in (
        ((), None, (3, 3), False),
        ((0, 0), None, (3, 3), False),
        ((3,), 1, (3, 3), False),  # the earlier layers have filled their caches
        ((3, 3), 1, (3, 3), True),
        ((0, 3), None, (3, 3), True),
        ((3,), 1, (3,), True),  # the part filled no cache of its own, so it may have read the cache of another part
    ):
        cache = DynamicCache(*before)
        found = call_tensors.given(Tensor, (), {"past_key_values": cache}, layer)
        cache.tokens = list(after)
        assert (before, layer, found.cached()) == (before, layer, cached)


class Kind(Enum):
    ONE = 1


class Opaque: ...


@dataclass(slots=True)
class Slotted:
    x: Any


def test_arguments_that_cannot_be_inspected_are_reported() -> None:
    a = Tensor()
    found = call_tensors.given(Tensor, (Slotted(a), slice(2), Kind.ONE), {"way": Kind.ONE})
    assert (found.tensors, found.more) == ([a], False)
    assert found.plain == {"1": "slice(None, 2, None)", "2": "<Kind.ONE: 1>", "way": "<Kind.ONE: 1>"}
    for each in (Opaque(), {1, 2}, Slotted, len):
        assert call_tensors.given(Tensor, (each,), {}).more


def test_too_deep_or_too_many_arguments_are_reported() -> None:
    deep: Any = Tensor()
    for _ in range(6):
        deep = [deep]
    assert call_tensors.given(Tensor, (deep,), {}).more
    many = call_tensors.given(Tensor, (Tensor(),) * (call_tensors.TENSORS_MAX + 1), {})
    assert (len(many.tensors), many.more) == (call_tensors.TENSORS_MAX, True)
    circle: list[Any] = []
    circle.append(circle)
    assert call_tensors.given(Tensor, (circle,), {}).more
