"""Calls C functions directly: the site of a model's tensor, and the length of a slice."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from conftest import WRITER
from faults import Compile
from hypothesis import given
from hypothesis import strategies as st

NO_LAYER = 2**32 - 1

Place = tuple[str, int | None, int | None]


# ---- names -------------------------------------------------------------------------------------------------------


class Weight(ctypes.Structure):
    """The first fields of struct brick_weight, and space for its other fields."""

    _fields_ = [
        ("name", ctypes.c_uint32),
        ("layer", ctypes.c_uint32),
        ("position", ctypes.c_uint64),
        ("has_position", ctypes.c_uint32),
        ("others", ctypes.c_uint8 * 1000),
    ]


class Weights(ctypes.Structure):
    """The fields of struct brick_weights up to `budget`, and space for its other fields."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("each", "count", "hold", "release", "host", "generation")),
        *((name, ctypes.c_uint64) for name in ("rescan_ns", "share_ppm", "look", "segment", "read")),
        *(
            (name, ctypes.c_uint64)
            for name in (
                "recorded",
                "gone",
                "step",
                "asked",
                "loads",
                "began_ns",
                "seen_ns",
                "next_ns",
                "next_ticks",
                "spent_ns",
                "lasted_ns",
            )
        ),
        ("credit", ctypes.c_int64),
        ("others", ctypes.c_uint8 * 5000),
    ]


@pytest.fixture(scope="module")
def native(compiled: Compile) -> Any:
    library = ctypes.CDLL(str(compiled("writer.so", WRITER, "-shared", "-fPIC")))
    library.brick_weight_site.restype = ctypes.c_size_t
    library.brick_weights_allowed.restype = library.brick_weights_interval.restype = ctypes.c_uint64
    return library


def place(native: Any, name: str) -> Place:
    """Take the numbers out of a name. Return the rest of the name, and the layer and the position that the numbers
    stand for.
    """
    text = name.encode()
    left, weight = ctypes.create_string_buffer(len(text) + 1), Weight()
    length = native.brick_weight_site(text, ctypes.c_size_t(len(text)), left, ctypes.byref(weight))
    return (
        left.raw[:length].decode(),
        None if weight.layer == NO_LAYER else weight.layer,
        weight.position if weight.has_position else None,
    )


@pytest.mark.parametrize(
    ("name", "left", "layer", "position"),
    [
        ("model.layers.3.mlp.experts.5.down.weight", "model.layers.*.mlp.experts.*.down.weight", 3, 5),
        ("model.layers.0.self_attn.q_proj.bias", "model.layers.*.self_attn.q_proj.bias", 0, None),
        ("transformer.h.11.attn.c_attn.weight", "transformer.h.*.attn.c_attn.weight", 11, None),
        ("encoder.block.3.layer.0.SelfAttention.q.weight", "encoder.block.*.layer.0.SelfAttention.q.weight", 3, None),
        ("towers.1.layers.3.norm.weight", "towers.1.layers.*.norm.weight", 3, None),
        ("single_transformer_blocks.7.norm.weight", "single_transformer_blocks.*.norm.weight", 7, None),
        ("visual.merger.2.weight", "visual.merger.*.weight", 2, None),
        ("features.0.weight", "features.*.weight", 0, None),
        ("0.weight", "*.weight", 0, None),
        ("experts.5.layers.2.experts.7", "experts.*.layers.*.experts.7", 2, 5),
        ("experts.5.w", "experts.*.w", None, 5),
        ("local_expert.5.3", "local_expert.*.*", 3, 5),
        ("embed_tokens.weight", "embed_tokens.weight", None, None),
        ("layers.03.w", "layers.03.w", None, None),
        ("layers.16777214.w", "layers.*.w", 16777214, None),
        ("layers.16777215.w", "layers.16777215.w", None, None),
        ("layers.99999999999999999999.w", "layers.99999999999999999999.w", None, None),
        ("layers.-1.+2.1e3. 4.5 .\u0663", "layers.-1.+2.1e3. 4.5 .\u0663", None, None),
        ("", "", None, None),
        ("..layers..3.", "..layers..*.", 3, None),
        ("7", "*", 7, None),
        ("_orig_mod.model.layers.3.up.weight", "model.layers.*.up.weight", 3, None),
        ("layers._orig_mod.3._orig_mod._orig_mod.experts._orig_mod.5.w", "layers.*.experts.*.w", 3, 5),
        ("_orig_mod", "_orig_mod", None, None),
        ("_orig_mod.", "", None, None),
        (".a._orig_mod._orig_mod", ".a._orig_mod", None, None),
        ("my_orig_mod.w._orig_mods.x", "my_orig_mod.w._orig_mods.x", None, None),
    ],
)
def test_layer_and_expert_numbers_are_removed_from_a_name(
    native: Any, name: str, left: str, layer: int | None, position: int | None
) -> None:
    assert place(native, name) == (left, layer, position)


parts = st.sampled_from(["layers", "h", "blocks", "experts", "expert", "mlp", "w", "0", "1", "12", "007", "x3", ""])


@given(
    st.lists(parts, min_size=1, max_size=9).map(".".join) | st.text(max_size=60).filter(lambda text: "*" not in text)
)
def test_no_two_names_have_the_same_place(native: Any, name: str) -> None:
    """A name can be rebuilt from its rest, layer and position. So no two names have all three in common."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    left, layer, position = place(native, name)
    stars = [n for n, part in enumerate(left.split(".")) if part == "*"]
    assert len(stars) == (layer is not None) + (position is not None)
    given_parts, left_parts = name.split("."), left.split(".")
    assert [given_parts[n] for n in range(len(given_parts)) if n not in stars] == [
        left_parts[n] for n in range(len(left_parts)) if n not in stars
    ]
    behind = {n: left_parts[n - 1].endswith(("expert", "experts")) and n > 0 for n in stars}
    experts = [n for n in stars if behind[n]]
    if position is not None:
        assert given_parts[experts[0]] == str(position)
        stars.remove(experts[0])
    assert [given_parts[n] for n in stars] == ([str(layer)] if layer is not None else [])


# ---- time --------------------------------------------------------------------------------------------------------

LEAST_NS, SLICE_NS = 50_000, 200_000
gaps = st.one_of(st.integers(0, 10**4), st.integers(0, 10**8), st.integers(0, 10**12))


@given(st.sampled_from([1, 5_000, 123_456, 1_000_000]), st.lists(st.tuples(gaps, st.integers(0, 30)), max_size=200))
def test_all_slices_together_take_their_share_of_the_time(
    native: Any, share: int, turns: list[tuple[int, int]]
) -> None:
    """If a slice takes too long, the next slice comes later."""
    weights = Weights(share_ppm=share)
    now = taken = over = 0
    for gap, tenths in turns:
        now += gap
        allowed = native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(now))
        assert allowed == 0 or LEAST_NS <= allowed <= SLICE_NS
        if allowed:
            assert taken * 1_000_000 <= now * share
            took = allowed * tenths // 10
            native.brick_weights_took(ctypes.byref(weights), ctypes.c_uint64(took))
            now, taken, over = now + took, taken + took, max(0, took - allowed)
    assert (taken - over) * 1_000_000 <= now * share


@pytest.mark.parametrize("gap", [1, *(pytest.param(each, marks=pytest.mark.ci) for each in (99, 100_000))])
def test_no_time_is_lost_with_short_steps(native: Any, gap: int) -> None:
    weights = Weights(share_ppm=500_000)
    turns = 0
    while not native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(turns * gap)):
        turns += 1
    assert turns * gap == pytest.approx(2 * LEAST_NS, abs=gap)


def test_a_long_pause_earns_no_credit_and_backward_time_none(native: Any) -> None:
    weights = Weights(share_ppm=0)
    for now, allowed in ((2**63, SLICE_NS), (5, SLICE_NS), (2**63, SLICE_NS)):
        assert native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(now)) == allowed
    native.brick_weights_took(ctypes.byref(weights), ctypes.c_uint64(2**64 - 1))
    assert native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(2**63 + 10**9)) == 0
    an_hour = 3600 * 10**9
    assert native.brick_weights_allowed(ctypes.byref(weights), ctypes.c_uint64(2**63 + 201 * an_hour)) == SLICE_NS


SECOND_NS = 10**9
AUTO = 2**64 - 1


@pytest.mark.parametrize(("given", "lasted", "interval"), [
    (0, 5, 0), (7, 5, 7), (7, 2**63, 7), (AUTO, 0, 300 * SECOND_NS), (AUTO, SECOND_NS, 300 * SECOND_NS),
    (AUTO, 3 * SECOND_NS // 2 + 1, 300 * SECOND_NS + 200), (AUTO, 3600 * SECOND_NS, 720_000 * SECOND_NS),
    (AUTO, 2**63, AUTO),
])  # fmt: skip
def test_by_default_the_next_scan_begins_after_five_minutes_or_200_durations(
    native: Any, given: int, lasted: int, interval: int
) -> None:
    weights = Weights(rescan_ns=given, lasted_ns=lasted)
    assert native.brick_weights_interval(ctypes.byref(weights)) == interval
