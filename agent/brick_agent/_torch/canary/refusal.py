"""Decides whether a canary may run through a model.

Owns: the reasons against it that are known before the first forward. Must not know: how a canary runs. Invariants: a
model is only read; what is not known counts as a reason.
"""

from __future__ import annotations

import sys

from brick_agent._core import _memory_allows
from brick_agent._torch.module_selection import is_compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

TOKENS_MAX = 4096  # of a canary
_LEAST_BYTES = 32 << 20  # memory that a first slice may need
_ORIGINAL = "original_max_position_embeddings"
_MEMINFO = "/proc/meminfo"


class RefusalError(Exception):
    """A canary does not run, or does not run to its end. The word is the reason, the text explains it."""

    def __init__(self, word: str, text: str) -> None:
        super().__init__(f"{word}: {text}")


def check(model: Any, tokens: Sequence[int], forced: Sequence[int]) -> None:
    """Raise a RefusalError if a canary with these tokens must not run through a model now."""
    _check_model(model)
    _check_tokens(tokens, forced, _vocabulary(model))
    given, longest = len(tokens) + len(forced), min(_lengths(model), default=TOKENS_MAX)
    if given > longest:
        raise RefusalError("length", f"{given} tokens, but positions of the model end at {longest}")


def _check_model(model: Any) -> None:
    torch = sys.modules["torch"]
    for name, module in model.named_modules():
        where = f"{name or 'the model'} ({type(module).__name__})"
        if module.training:
            raise RefusalError("training", f"{where} is in training mode")
        if is_compiled(module):
            raise RefusalError("compiled", where)
        if isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "DataParallel":
            raise RefusalError("compiled", f"{where} is not an ordinary module")
    devices = {each.device.type for each in (*model.parameters(), *model.buffers())}
    if devices != {"cpu"}:
        raise RefusalError(
            "device", f"the tensors are on {', '.join(sorted(devices)) or 'no device'}, not in host memory"
        )
    ranks = torch.distributed
    if ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1:
        raise RefusalError("ranks", f"the model has {ranks.get_world_size()} ranks")
    of_all = torch.nn.modules.module
    if of_all._global_forward_hooks or of_all._global_forward_pre_hooks:
        raise RefusalError("hooks", "torch has forward hooks for all modules")


def _check_tokens(tokens: Sequence[int], forced: Sequence[int], vocabulary: int) -> None:
    if not tokens:
        raise RefusalError("tokens", "a canary needs at least one token")
    if len(tokens) + len(forced) > TOKENS_MAX:
        raise RefusalError("tokens", f"{len(tokens) + len(forced)} tokens, at most {TOKENS_MAX} are possible")
    for each in (*tokens, *forced):
        if type(each) is not int or not 0 <= each < vocabulary:
            raise RefusalError("tokens", f"{each!r:.40} is not an id from 0 to {vocabulary - 1}")


def _vocabulary(model: Any) -> int:
    """Return the number of ids. The first embedding is that of the tokens."""
    embedding = sys.modules["torch"].nn.Embedding
    found = [each.num_embeddings for each in model.modules() if isinstance(each, embedding)]
    if not found:
        raise RefusalError("tokens", "the model has no embedding, so its ids are not known")
    return int(found[0])


def _lengths(model: Any) -> Iterable[int]:
    """Return the lengths for which the positions of a model were made, without any extension."""
    for module in model.modules():
        held = vars(module)
        config = held.get("config")
        rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
        known = [held.get("original_max_seq_len")]
        known += [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", _ORIGINAL)]
        of_kinds = [rotary, *rotary.values()] if isinstance(rotary, dict) else []  # of all layers, and of some of them
        known += [each.get(_ORIGINAL) for each in of_kinds if isinstance(each, dict)]
        yield from (each for each in known if type(each) is int and each > 0)


def check_memory(need: int) -> None:
    """Raise a RefusalError if the memory that is left is less than twice the need of a slice."""
    twice = 2 * max(need, _LEAST_BYTES)
    if not _memory_allows(twice) or _available() < twice:
        raise RefusalError("memory", f"less than {twice >> 20} MiB are left, twice the need of a slice")


def _available() -> int:
    """Return the memory of this machine that programs can still get."""
    with open(_MEMINFO, encoding="ascii", errors="replace") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
    return int(line.split()[1]) << 10
