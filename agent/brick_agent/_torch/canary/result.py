"""The result of a canary.

Owns: what is known after a canary, and how fingerprints become digests. Must not know: how a canary runs. Invariants:
two results with the same model, context and input have the same sites unless something computed differently; a digest
contains no token and no value of a tensor.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from brick_agent._core import fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

_BYTES = 16
_SAMPLES = 4  # elements of each parameter in a model's digest


class CanarySite(NamedTuple):
    """What a canary computed at one site: a digest of the fingerprints of the prompt, and one of the forced tokens.

    >>> brick.CanarySite("layers.*.mlp", 3, "5b0c", "91aa").layer
    3
    """

    kernel: str
    layer: int | None
    prompt: str
    forced: str


class CanaryResult(NamedTuple):
    """How a canary ended, and what it computed.

    Results can be compared if `input`, `model` and `context` are equal.

    >>> brick.CanaryResult("greeting", "refused", "training: the model (Model) is in training mode").end
    'refused'
    """

    name: str
    end: str  # done, refused, off (no canary runs in this worker any more) or stuck
    reason: str | None = None
    input: str = ""  # digest of the tokens
    model: str = ""  # digest of the parameters' names, shapes, dtypes and of a few of their elements
    context: str = ""  # everything else that decides the last bits
    sites: tuple[CanarySite, ...] = ()  # in the order in which they were computed
    slices: int = 0  # pieces of work: one for each forward, one at the beginning and one at the end
    spent_s: float = 0.0  # in all slices
    longest_s: float = 0.0  # in the longest one


CanaryResult.__module__ = CanarySite.__module__ = "brick_agent"  # pickles name this module, not this file


class SiteDigests:
    """Digests of the outputs of parts, over all slices."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], dict[bool, Any]] = {}

    def add(self, kernel: str, layer: int | None, is_forced: bool, tensors: Iterable[Any]) -> None:
        """Add the output of a part. The key of a fingerprint is 0, so that hosts with different keys can compare."""
        of_site = self._found.setdefault((kernel, layer), {False: _hash(), True: _hash()})
        for tensor in tensors:
            taken = fingerprint(tensor)
            of_site[is_forced].update(f"{taken.dtype} {tuple(tensor.shape)} {taken.checksum};".encode())

    def sites(self) -> tuple[CanarySite, ...]:
        """Return all sites, in the order in which they were computed first."""
        return tuple(
            CanarySite(kernel, layer, each[False].hexdigest(), each[True].hexdigest())
            for (kernel, layer), each in self._found.items()
        )


def digest_of_input(tokens: Sequence[int], forced: Sequence[int], chunk: int) -> str:
    """Return a digest of everything that a canary is given."""
    digest: str = _hash(repr((list(tokens), list(forced), chunk)).encode()).hexdigest()
    return digest


def digest_of_model(model: Any) -> str:
    """Return a digest that tells one model, or one version of a model, from another.

    It has only a few elements of each parameter, so that a single wrong weight is found by the canary, and is not
    taken for another model.
    """
    found = _hash()
    for name, each in model.named_parameters():
        found.update(f"{name} {tuple(each.shape)} {each.dtype} {_samples(each)};".encode())
    digest: str = found.hexdigest()
    return digest


def _samples(tensor: Any) -> list[str]:
    last = tensor.numel() - 1
    if last < 0:
        return []
    return [repr(_element(tensor, last * n // (_SAMPLES - 1))) for n in range(_SAMPLES)]


def _element(tensor: Any, index: int) -> Any:
    place = []
    for size in reversed(tensor.shape):
        index, rest = divmod(index, size)
        place.append(rest)
    return tensor[tuple(reversed(place))].item()


def _hash(content: bytes = b"") -> Any:
    return hashlib.blake2b(content, digest_size=_BYTES)
