"""Real model architectures with seeded weights, small enough for three workers on two cores.

Owns: how each architecture is built, how it answers a request, and the names of its layers and operators. Must not
know: brickd, faults. Invariant: the same seed and the same request give the same bits in every worker.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    ViTConfig,
    ViTModel,
)
from transformers.utils import logging

_VOCABULARY = 512
_DECODED = 3
_SIZE = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
_TEXT = {**_SIZE, "vocab_size": _VOCABULARY}


class Architecture(NamedTuple):
    """One architecture.

    Attributes:
        build: builds the model from torch's random state.
        request: answers the request with this number, and returns the tensors of the answer.
        layers: the name of a layer, with {} in place of its number.
        operators: the names, within a layer, of the modules that do most of the work.
    """

    build: Callable[[], Any]
    request: Callable[[Any, int], Iterable[Any]]
    layers: str
    operators: tuple[str, ...]


def model(of: Architecture, seed: int) -> Any:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    torch.manual_seed(seed)
    return of.build().eval()


def answered(of: Architecture, whole: Any, number: int) -> str:
    """Answer a request; return a digest of the answer."""
    digest = hashlib.blake2b(digest_size=8)
    with torch.inference_mode():
        for tensor in of.request(whole, number):
            digest.update(tensor.float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _drawn(number: int) -> Any:
    return torch.Generator().manual_seed(number)


def _tokens(number: int) -> Any:
    return torch.randint(0, _VOCABULARY, (1, 8 + number % 16), generator=_drawn(number))


def _generated(whole: Any, number: int) -> Iterable[Any]:
    """Run a prefill, then generate a few tokens with a cache."""
    cache = "cache" if "cache" in inspect.signature(type(whole).forward).parameters else "past_key_values"
    found = whole(_tokens(number), use_cache=True)
    yield found.logits
    for _ in range(_DECODED):
        following = found.logits[:, -1:].argmax(-1)
        found = whole(following, use_cache=True, **{cache: found.past_key_values})
        yield found.logits


def _encoded(whole: Any, number: int) -> Iterable[Any]:
    ids = _tokens(number)
    yield whole(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def _seen(whole: Any, number: int) -> Iterable[Any]:
    yield whole(pixel_values=torch.randn(1, 3, 32, 32, generator=_drawn(number))).last_hidden_state


def _denoised(whole: Any, number: int) -> Iterable[Any]:
    latent = torch.randn(1, 4, 16, 16, generator=_drawn(number))
    for step in (750.0, 250.0):
        latent = latent - 0.1 * whole(latent, torch.tensor([step]))
        yield latent


def _llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**_TEXT, num_key_value_heads=2))


def _quantized() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that dynamic quantization will move to another package
        return torch.ao.quantization.quantize_dynamic(_llama().eval(), {nn.Linear}, dtype=torch.qint8)


class _ResnetBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions with norms around a time embedding."""

    def __init__(self, wide_in: int, wide: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, wide_in), nn.Conv2d(wide_in, wide, 3, padding=1)
        self.time_emb_proj = nn.Linear(time, wide)
        self.norm2, self.conv2 = nn.GroupNorm(8, wide), nn.Conv2d(wide, wide, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(wide_in, wide, 1)
        self.nonlinearity = nn.SiLU()

    def forward(self, x: Any, time: Any) -> Any:
        inner = self.conv1(self.nonlinearity(self.norm1(x)))
        inner = inner + self.time_emb_proj(self.nonlinearity(time))[:, :, None, None]
        return self.conv_shortcut(x) + self.conv2(self.nonlinearity(self.norm2(inner)))


class _Attention(nn.Module):  # type: ignore[misc]
    """Self-attention over the places of an image."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.group_norm = nn.GroupNorm(8, wide)
        self.to_qkv, self.to_out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)

    def forward(self, x: Any) -> Any:
        batch, wide, high, across = x.shape
        flat = self.group_norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.to_qkv(flat).view(batch, -1, 3, self.heads, wide // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.to_out(mixed).transpose(1, 2).view(batch, wide, high, across)


class _Block(nn.Module):  # type: ignore[misc]
    """A level of the U-Net: convolutions and an attention."""

    def __init__(self, wide_in: int, wide: int, time: int) -> None:
        super().__init__()
        self.resnet, self.attention = _ResnetBlock(wide_in, wide, time), _Attention(wide, 4)

    def forward(self, x: Any, time: Any) -> Any:
        return self.attention(self.resnet(x, time))


class _UNet(nn.Module):  # type: ignore[misc]
    """A small U-Net with attention at each level, as in a diffusion model."""

    def __init__(self) -> None:
        super().__init__()
        time, wide = 64, (32, 64)
        self.time_embedding = nn.Sequential(nn.Linear(32, time), nn.SiLU(), nn.Linear(time, time))
        self.conv_in, self.conv_out = nn.Conv2d(4, wide[0], 3, padding=1), nn.Conv2d(wide[0], 4, 3, padding=1)
        self.blocks = nn.ModuleList(
            (
                _Block(wide[0], wide[0], time),
                _Block(wide[0], wide[1], time),
                _Block(2 * wide[1], wide[0], time),
                _Block(2 * wide[0], wide[0], time),
            )
        )

    def forward(self, latent: Any, step: Any) -> Any:
        angles = step[:, None] * torch.exp(-torch.arange(16) / 2)
        time = self.time_embedding(torch.cat((angles.sin(), angles.cos()), -1))
        high = self.blocks[0](self.conv_in(latent), time)
        low = self.blocks[1](nn.functional.avg_pool2d(high, 2), time)
        up = self.blocks[2](torch.cat((low, low), 1), time)
        wide = nn.functional.interpolate(up, scale_factor=2)
        return self.conv_out(self.blocks[3](torch.cat((wide, high), 1), time))


def _mixtral() -> Any:
    config = MixtralConfig(**_TEXT, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    return MixtralForCausalLM(config)


_DECODER = ("model.layers.{}", ("mlp", "self_attn"))
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama_fp32": Architecture(_llama, _generated, *_DECODER),
    "llama_bf16": Architecture(lambda: _llama().to(torch.bfloat16), _generated, *_DECODER),
    "llama_int8": Architecture(_quantized, _generated, *_DECODER),
    "mixtral": Architecture(_mixtral, _generated, *_DECODER),
    "mixtral_bf16": Architecture(lambda: _mixtral().to(torch.bfloat16), _generated, *_DECODER),
    "vit": Architecture(
        lambda: ViTModel(ViTConfig(**_SIZE, image_size=32, patch_size=8)), _seen, "layers.{}", ("mlp", "attention")
    ),
    "unet": Architecture(_UNet, _denoised, "blocks.{}", ("resnet", "attention")),
    "bert": Architecture(
        lambda: BertModel(BertConfig(**_TEXT)), _encoded, "encoder.layer.{}", ("intermediate", "attention")
    ),
}
