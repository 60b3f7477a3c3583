"""Models whose sequences have a history, and why other models of transformers have none.

Owns: the families of models for which histories are known to decide a row, and what excludes a model. Must not know:
calls, caches. Invariants: a model of a family that was never examined has no histories; nothing is computed with
tensors; torch and transformers are never imported.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys

from brick_agent._torch.module_selection import is_compiled
from brick_agent._torch.row_wise import COMPILED, QUANTIZED, is_quantized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# Decoders of transformers with dense MLPs. They are causal, and by default the position of a token is its column.
_DENSE = ("arcee", "gemma", "gpt2", "gpt_neox", "granite", "helium", "llama", "mistral", "olmo", "olmo2", "phi", "phi3")
_FAMILIES = frozenset((*_DENSE, "qwen2", "qwen3", "smollm3", "stablelm", "starcoder2"))
# Reasons why the histories of all sequences of a model are unknown.
ENCODER = "encoder"
EXPERTS = "experts"
MODEL = "model"
_EXPERTS = re.compile(r"moe|expert|router", re.IGNORECASE)
_GROWING = ("dynamic", "longrope")  # rotary embeddings whose scale depends on the longest sequence of the batch


def entries(model: Any, outermost: Iterable[Any]) -> list[tuple[Any, tuple[str, ...]]]:
    """Return the modules whose calls get tokens, each with the names of its positional arguments."""
    found = []
    for module in outermost:
        names = _arguments(module) if _is_generative(model, module) else ()
        if "input_ids" in names:
            found.append((module, names))
    return found


def _is_generative(model: Any, module: Any) -> bool:
    kind, family = type(module), getattr(getattr(module, "config", None), "model_type", None)
    if not any(each.__module__.startswith("transformers.") for each in kind.__mro__):
        return False
    return family in _FAMILIES or any(hasattr(each, "generate") for each in (module, model))


def _arguments(module: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(type(module).forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    named = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return tuple(named[1:])


def why_no_histories(module: Any) -> str | None:
    """Return why the histories of a model's sequences are unknown; None: they are known."""
    config, inside = module.config, list(module.modules())
    if getattr(config, "is_encoder_decoder", False):
        return ENCODER
    if any(map(is_compiled, inside)):
        return COMPILED
    if is_quantized(module):
        return QUANTIZED
    if any(_EXPERTS.search(type(each).__name__) for each in inside):
        return EXPERTS
    is_known = config.model_type in _FAMILIES and all(map(_is_original, inside))
    is_causal = getattr(config, "is_causal", True) and all(getattr(each, "is_causal", True) for each in inside)
    return None if is_known and is_causal and not getattr(config, "add_cross_attention", False) else MODEL


def _is_original(module: Any) -> bool:
    """Whether a module computes what its library defines."""
    forward = type(module).forward
    is_library = getattr(forward, "__module__", "").startswith(("torch.nn.modules.", "transformers."))
    return is_library and "forward" not in vars(module)


def longest(module: Any) -> int:
    """Return the length of sequence up to which the rotary embedding does not depend on the batch."""
    kinds = [getattr(each, "rope_type", None) for each in module.modules()]
    flat = [kind for each in kinds for kind in (each.values() if isinstance(each, dict) else (each,))]
    if not any(kind in _GROWING for kind in flat):
        return sys.maxsize
    known = [
        getattr(module.config, name, None) for name in ("original_max_position_embeddings", "max_position_embeddings")
    ]
    scaling = getattr(module.config, "rope_parameters", None) or getattr(module.config, "rope_scaling", None) or {}
    known.append(scaling.get("original_max_position_embeddings") if isinstance(scaling, dict) else None)
    return min((each for each in known if isinstance(each, int)), default=0)


def digest(module: Any) -> str:
    """Return a digest of a model's configuration, without the names of its files."""
    fields = {name: value for name, value in module.config.to_dict().items() if not name.startswith("_")}
    return hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()[:16]
