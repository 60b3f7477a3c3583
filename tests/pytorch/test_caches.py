"""Steps of a model with a cache: which steps have the same number.

The model and its caches are imitations that have the attributes which brickd reads from torch and transformers.
"""

from __future__ import annotations

from brick_agent._torch import call_tensors
from checksums import recorded
from faults import Start
from fingerprints import splitmix64
from numpy import array, uint64

# A tensor of this imitation can be read as bytes. As in transformers, a cache shows whether its layers have content.
MODEL = """
import copy, gc, sys, types, weakref
class Tensor(bytearray):
    def dim(self): return 0
sys.modules["torch"] = types.SimpleNamespace(Tensor=Tensor)
from brick_agent._torch.steps import stepped
class Layer: is_initialized = False
class KeptCache:
    def __init__(self): self.layers = [Layer(), Layer()]
class Made:
    def __init__(self, past_key_values): self.__dict__["past_key_values"] = past_key_values
@stepped
def forward(tokens, past_key_values=None, make=False):
    brick.checksum("cell", bytes(tokens))
    made = KeptCache() if make else past_key_values
    for each in getattr(made, "layers", ()): each.is_initialized = True
    return {"past_key_values": made}
def generate(prompt, *tokens, cache=None):
    cache = cache or KeptCache()
    for each in (prompt, *tokens): forward(Tensor(each), past_key_values=cache)
    return cache
"""


def numbers(worker: Start, prefix: str, source: str, **environment: str) -> list[int]:
    """Return the step number of each forward pass, in order."""
    reported = {"BRICKD_FINGERPRINTS": "all", "BRICKD_SHM_PREFIX": prefix} | environment
    return [each["step"] for each in recorded(worker, prefix, MODEL + source, **reported).events]


def test_steps_with_one_last_token_and_different_caches_have_different_numbers(worker: Start, prefix: str) -> None:
    source = "generate(b'one', b'x', b'y'); generate(b'two', b'x', b'y'); generate(b'one', b'x', b'y')"
    one, two, again = (found := numbers(worker, prefix, source))[:3], found[3:6], found[6:]
    assert not set(one) & set(two)
    assert again == one


def test_equal_steps_have_equal_numbers_in_every_process(worker: Start, prefix: str) -> None:
    a = "one, two = generate(b'one'), generate(b'two')\nfor each in (one, two): generate(b'x', cache=each)"
    b = "generate(b'two', b'x'); generate(b'one', b'x')"
    first, second = (numbers(worker, f"{prefix}{n}", source) for n, source in enumerate((a, b)))
    assert second == [first[1], first[3], first[0], first[2]]


def test_the_number_of_a_step_without_a_cache_depends_only_on_its_tensors(worker: Start, prefix: str) -> None:
    source = MODEL + "forward(Tensor(b'one')); generate(b'one')"
    events = recorded(worker, prefix, source, BRICKD_FINGERPRINTS="all").events
    (given,) = {each["tensors"][0]["checksum"] for each in events}  # the model returns its input
    assert [each["step"] for each in events] == [int(splitmix64(array([given], uint64))[0])] * 2


def test_an_empty_cache_counts_as_none(worker: Start, prefix: str) -> None:
    found = numbers(
        worker, prefix, "forward(Tensor(b'one')); generate(b'one'); forward(Tensor(b'one'), past_key_values=None)"
    )
    assert len(found) == 3
    assert len(set(found)) == 1


def test_a_cache_made_by_the_model_is_filled_by_that_step(worker: Start, prefix: str) -> None:
    source = """
generate(b'one', b'x')
made = forward(Tensor(b'one'), make=True)["past_key_values"]
forward(Tensor(b'x'), made)
"""
    found = numbers(worker, prefix, source)
    assert found[2:] == found[:2]


def test_a_step_with_a_cache_filled_elsewhere_has_its_own_number(worker: Start, prefix: str) -> None:
    source = """
filled = generate(b'one')
for cache in (copy.deepcopy(filled), copy.deepcopy(filled), [filled], (b"keys", b"values"), object.__new__(KeptCache)):
    for _ in range(2): forward(Tensor(b'x'), past_key_values=cache)
forward(Tensor(b'x'), filled)
"""
    found = numbers(worker, prefix, source)
    assert len(set(found)) == len(found) == 12


def test_sampling_of_steps_does_not_depend_on_their_caches(worker: Start, prefix: str) -> None:
    source = "for n in range(40): generate(b'prompt %d' % n, b'x'); forward(Tensor(b'x'), past_key_values=(n,))"
    found = numbers(worker, prefix, source)
    assert len(set(found[1::3]) | set(found[2::3])) == 80
    hashes = splitmix64(uint64(0xA0761D6478BD642F) ^ array(found, uint64)) >> uint64(32)
    assert len(set(hashes[1::3]) | set(hashes[2::3])) == 1
    assert len(set(hashes[::3])) == 40


def test_no_cache_is_kept_alive(worker: Start, prefix: str) -> None:
    source = "kept = weakref.ref(generate(b'one', b'x')); gc.collect(); reported = kept() is None"
    assert recorded(worker, prefix, MODEL + source).reported is True


def test_an_exception_of_the_model_is_raised_and_its_next_step_recorded(worker: Start, prefix: str) -> None:
    source = """
@stepped
def fails(tokens): raise KeyError(tokens)
reported = []
for each in (Tensor(b"x"), b"plain"):
    try: fails(each)
    except KeyError as error: reported.append(error.args[0] is each)
reported.append(forward(Tensor(b"x"))["past_key_values"] is None)
"""
    got = recorded(worker, prefix, MODEL + source, BRICKD_FINGERPRINTS="all")
    assert got.reported == [True, True, True]
    assert len(got.events) == 1


class Layer:
    def __init__(self, holds: bool) -> None:
        self.is_initialized = holds


class Cache:
    def __init__(self, *holds: bool) -> None:
        self.layers = [Layer(each) for each in holds]


class Both:
    def __init__(self, own: Cache, cross: Cache) -> None:
        self.self_attention_cache, self.cross_attention_cache = own, cross


def test_a_cache_is_fresh_only_if_every_layer_is_empty() -> None:
    assert [call_tensors.is_fresh(Cache(*each)) for each in ((), (False, False), (True, False), (False, True))] == [
        True,
        True,
        False,
        False,
    ]
    assert [call_tensors.is_fresh(Both(Cache(False), Cache(each))) for each in (False, True)] == [True, False]
    assert not any(map(call_tensors.is_fresh, (object(), [], (), {})))
    unknown = Cache(False)
    unknown.layers.append(object())  # type: ignore[arg-type]
    assert not call_tensors.is_fresh(unknown)
