"""The fingerprint in C: each variant against numpy, for all types, shapes and contents."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import ROOT
from faults import Compile
from fingerprints import (
    ALL_ROWS,
    CODES,
    Bytes,
    Tensor,
    Variants,
    differences,
    expected,
    siphash,
    stored,
    tensor,
    values,
    weights,
)
from hypothesis import given
from hypothesis import strategies as st

Floats = npt.NDArray[np.float64]

SPECIAL = {
    "float16": (np.nan, np.inf, -np.inf, -0.0, 6e-8, 65504.0),
    "float32": (np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38, -3.4028235e38),
    "float64": (np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308, 1e300, -1e-300, 1e160, 1e-200),
}


AGENT = ROOT / "agent" / "src"
SOURCES = (
    ROOT / "tests" / "native" / "fingerprint.c",
    AGENT / "fingerprint/fingerprint.c",
    AGENT / "fingerprint/simd.c",
)


@pytest.fixture(scope="module")
def variants(compiled: Compile) -> Variants:
    return Variants(compiled("fingerprint.so", SOURCES, "-O2", "-shared", "-fPIC"))


def arrays(dtype: str, shape: tuple[int, ...], seed: int) -> Bytes:
    """Draw elements of a random kind: any bits, numbers of similar size, or numbers with special values."""
    random, held = np.random.default_rng(seed), stored(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    match seed % 3:
        case 0:
            flat = np.frombuffer(random.bytes(count * held.itemsize), held).copy()
        case 1 if dtype in SPECIAL:
            flat = (random.standard_normal(count) * 10.0 ** random.integers(-3, 4)).astype(held)
        case _:
            flat = random.integers(0, 2 if dtype == "bool" else 100, count).astype(held)
    if dtype in SPECIAL and seed % 5 < 2 and count:
        where = random.integers(0, count, 1 + count // (1 if seed % 2 else 50))
        flat[where] = random.choice(np.array(SPECIAL[dtype]), len(where)).astype(held)
    return flat.reshape(shape)


def turned(array: Bytes, random: np.random.Generator) -> Bytes:
    """Draw a view of a part of an array: permuted, reversed, strided, repeated or unaligned."""
    for axis in range(array.ndim):
        step = int(random.choice([-3, -2, -1, 1, 1, 2]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    if random.integers(2):
        array = array.transpose(random.permutation(array.ndim))
    if random.integers(4) == 0 and array.ndim:
        array = np.broadcast_to(array[..., :1], array.shape)
    if random.integers(3) == 0:
        odd = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype) if array.size else array
        if array.size:
            odd = odd.reshape(array.shape)
            odd[...] = array
        array = odd
    return array


shapes = st.one_of(
    st.lists(st.integers(0, 20), max_size=4).map(tuple),
    st.tuples(st.integers(0, 5000)),
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
)


@pytest.mark.ci
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variants are those of x86-64")
def test_each_vector_width_of_the_processor_has_a_variant(variants: Variants) -> None:
    flags = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
    needs = {"avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl"}}
    wide = [name for name, needed in needs.items() if needed <= flags]
    assert variants.names == ["generic", "sse2", *wide]


@pytest.mark.ci
@given(
    st.sampled_from(sorted(CODES)), shapes, st.integers(0, 2**32), st.integers(0, 2**128 - 1), st.booleans(), st.data()
)
def test_every_variant_follows_the_definition(
    variants: Variants, dtype: str, shape: tuple[int, ...], seed: int, key: int, plain: bool, data: st.DataObject
) -> None:
    array = arrays(dtype, shape, seed)
    if not plain:
        array = turned(array, np.random.default_rng(seed + 1))
    valid = data.draw(st.none() | st.integers(0, array.shape[0])) if array.ndim else None
    want = expected(array, dtype, valid, key)
    for name in variants.names:
        assert differences(variants.of(name, array, dtype, valid, key), want) == [], name


@given(
    st.sampled_from(sorted(CODES)),
    shapes,
    st.integers(0, 2**32),
    st.booleans(),
    st.lists(st.integers(0, 20_000), min_size=1, max_size=3),
    st.data(),
)
def test_every_variant_gives_identical_results_in_pieces_of_any_size(
    variants: Variants,
    dtype: str,
    shape: tuple[int, ...],
    seed: int,
    plain: bool,
    sizes: list[int],
    data: st.DataObject,
) -> None:
    array = arrays(dtype, shape, seed)
    if not plain:
        array = turned(array, np.random.default_rng(seed + 1))
    valid = data.draw(st.none() | st.integers(0, array.shape[0])) if array.ndim else None
    for name in variants.names:
        whole = variants.of(name, array, dtype, valid, seed)
        assert bytes(variants.in_pieces(name, tensor(array, dtype, valid), sizes, seed)) == bytes(whole), name


@pytest.mark.parametrize("dtype", sorted(CODES))
def test_a_long_tensor_of_each_type_is_equal_in_pieces(variants: Variants, dtype: str) -> None:
    array = arrays(dtype, (7, 11_111), 3 * CODES[dtype] + 1)
    # the squares overflow, so the tensor is read a second time, with another scale
    huge = np.arange(70_000.0) * 1e300 if dtype == "float64" else array
    for each in (array, array[:, ::-2], array.T, huge):
        for name in variants.names:
            whole = bytes(variants.of(name, each, dtype))
            for sizes in ([0], [4096], [8192, 1, 100_000], [2**64 - 1]):
                assert bytes(variants.in_pieces(name, tensor(each, dtype), sizes)) == whole, (name, sizes)


def test_a_tensor_replaced_during_the_fingerprint_is_detected(variants: Variants) -> None:
    array = np.arange(10_000, dtype=np.float32)
    begun = tensor(array, "float32")
    assert variants.moved(begun, tensor(array, "float32")) == 1
    assert variants.moved(tensor(array[:9], "float32"), tensor(array[:9], "float32")) == 0
    others = (array.copy(), array[1:], array[:-1], array[::-1], array.reshape(100, 100).T)
    for other in others:
        assert variants.moved(begun, tensor(other, "float32")) == 2
    assert variants.moved(begun, tensor(array.view(np.int32), "int32")) == 2
    assert variants.moved(begun, tensor(array, "float32", 3)) == 2


@pytest.mark.parametrize("dtype", sorted(CODES))
def test_a_long_tensor_of_each_type_follows_the_definition(variants: Variants, dtype: str) -> None:
    array = arrays(dtype, (3, 7, 1111), 3 * CODES[dtype] + 1)
    for each in (array, array[:, ::-2, 5:], array.transpose(2, 0, 1)):
        want = expected(each, dtype)
        for name in variants.names:
            assert differences(variants.of(name, each, dtype), want) == [], name


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float16", "bfloat16"]
)
def test_every_bit_pattern_of_a_small_float_has_its_value(variants: Variants, name: str) -> None:
    bits = np.arange(256 ** stored(name).itemsize).astype(f"u{stored(name).itemsize}")
    patterns = bits[:: 1 if bits.itemsize == 1 else 257].view(stored(name))
    for variant in variants.names:
        for n, value in enumerate(values(patterns, name)):
            got = variants.of(variant, patterns[n : n + 1], name)
            assert (got.nan, got.pos_inf, got.neg_inf) == (np.isnan(value), value == np.inf, value == -np.inf), hex(n)
            assert got.mean == (value if np.isfinite(value) else 0), hex(n)


def test_tensors_with_up_to_64_dimensions_have_a_fingerprint(variants: Variants) -> None:
    array = arrays("float32", (2,) * 11, 1)
    apart = np.lib.stride_tricks.as_strided(
        array, (1, 2) * 11 + (1,) * 42, tuple(s for stride in array.strides[::-1] for s in (8, stride)) + (4,) * 42
    )
    assert apart.ndim == 64
    want = expected(array.transpose(), "float32")
    for name in variants.names:
        assert differences(variants.of(name, apart, "float32"), want) == [], name


def test_shape_and_strides_with_the_same_flat_order_change_nothing(variants: Variants) -> None:
    array = arrays("float64", (6, 4, 100), 1)
    want = variants.of("generic", array, "float64").checksum
    for same in (array.reshape(-1), array.reshape(24, 10, 10), np.asfortranarray(array), array.reshape(1, 6, 1, 400)):
        for name in variants.names:
            assert variants.of(name, same, "float64").checksum == want


def test_rows_beyond_the_valid_ones_have_no_effect(variants: Variants) -> None:
    whole = arrays("float32", (100, 33), 1)
    for rows in (0, 1, 50, 99, 100):
        padded = whole.copy()
        padded[rows:] = np.nan
        for array in (padded, np.asfortranarray(padded)):
            want = expected(whole[:rows], "float32")
            for name in variants.names:
                assert differences(variants.of(name, array, "float32", rows), want) == []


@given(st.sampled_from(sorted(CODES)), st.integers(1, 3000), st.integers(0, 2**32), st.data())
def test_one_changed_bit_always_changes_the_checksum(
    variants: Variants, dtype: str, count: int, seed: int, data: st.DataObject
) -> None:
    array = arrays(dtype, (count,), seed)
    bit = data.draw(st.integers(0, 8 * array.nbytes - 1))
    changed = array.copy()
    changed.view(np.uint8)[bit // 8] ^= 1 << bit % 8
    for name in variants.names:
        assert variants.of(name, array, dtype).checksum != variants.of(name, changed, dtype).checksum


@given(st.integers(2, 3000), st.integers(0, 2**32), st.data())
def test_swapping_two_words_changes_the_checksum(
    variants: Variants, count: int, seed: int, data: st.DataObject
) -> None:
    array = np.random.default_rng(seed).permutation(count).astype(np.uint32)
    one, other = data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
    swapped = array.copy()
    swapped[[one, other]] = array[[other, one]]
    assert variants.of("generic", array, "uint32").checksum != variants.of("generic", swapped, "uint32").checksum


def test_a_zero_minimum_or_maximum_has_no_sign(variants: Variants) -> None:
    for dtype in ("float16", "float32", "float64"):
        for array in (np.full(40, -0.0, dtype), np.array([0.0, -0.0, np.nan], dtype)):
            for name in variants.names:
                got = variants.of(name, array, dtype)
                assert (str(got.min), str(got.max)) == ("0.0", "0.0")


def test_length_dtype_and_key_are_part_of_the_checksum(variants: Variants) -> None:
    zeros = np.zeros(64, np.uint8)
    seen = {variants.of("generic", zeros[:length], "uint8").checksum for length in range(65)}
    seen |= {variants.of("generic", zeros.view(held), name).checksum for name, held in
             ((name, stored(name)) for name in CODES if name != "uint8")}  # fmt: skip
    seen |= {variants.of("generic", zeros, "uint8", None, key).checksum for key in (1, 2, 2**63, 2**64, 2**127)}
    assert len(seen) == 65 + 16 + 5


@pytest.mark.parametrize("key", [0, 1, 2**64, 2**128 - 1])
def test_no_two_words_of_the_first_blocks_have_the_same_weight(key: int) -> None:
    """There are 4,096 random weights of 31 bits. Only with one key in 256 are two of them equal."""
    assert len(np.unique(weights(256, key))) == 256 * 16


# ---- what a known tensor reveals about the key -----------------------------------------------------------------------

KEY_OF_VECTORS = int.from_bytes(range(16), "little")
# the test vectors published with SipHash-2-4, of the bytes 0, 1, 2, …, for the lengths that brickd uses and others
VECTORS = {
    0: "310e0edd47db6f72",
    8: "6224939a79f5f593",
    15: "e545be4961ca29a1",
    16: "db9bc2577fcc2a3f",
    24: "94af49f6c650adb8",
    63: "724506eb4c328a95",
}


@pytest.mark.parametrize("length", VECTORS)
def test_siphash_has_the_published_results(variants: Variants, length: int) -> None:
    message, want = bytes(range(length)), int.from_bytes(bytes.fromhex(VECTORS[length]), "little")
    assert siphash(message, KEY_OF_VECTORS) == want
    if length % 8 == 0:
        assert variants.siphash(np.frombuffer(message, "<u8").tolist(), KEY_OF_VECTORS) == want


@given(st.lists(st.integers(0, 2**64 - 1), max_size=31), st.integers(0, 2**128 - 1))
def test_siphash_of_words_equals_that_of_their_bytes(variants: Variants, words: list[int], key: int) -> None:
    assert variants.siphash(words, key) == siphash(np.array(words, "<u8").tobytes(), key)


# ---- results that were computed once and stored
# -------------------------------------------------------------------------

SEEDS = {
    "": 0xCBF29CE484222325,
    "0": 0x4D25767F9DCE13F5,
    "-0": 0x4D24F67F9DCD3A75,
    "1": 0x4B72477F9C5C2F98,
    "1 2 3": 0x1DE40D89811FE258,
    "nan": 0x4A98877F9BA2F898,
    "1 " * 64: 0xEAFC787127B76D25,
    "1 " * 65: 0xEAFC787127B76D25,
}


@pytest.mark.parametrize("text", SEEDS)
def test_the_first_floats_have_the_checksum_of_the_seed_profiler(variants: Variants, text: str) -> None:
    array = np.array([float(each) for each in text.split()], np.float32)
    for name in variants.names:
        assert variants.of(name, array, "float32").fnv1a == SEEDS[text]


GOLDEN = {  # for each dtype: the checksum of all 1,000 elements with a key, and of the first 7 without a key
    "bool": ("11311575dcc336e5", "81adfb34d3132f0a"),
    "int8": ("a13221cd774a24a5", "9efa42161b5886d1"),
    "int16": ("ba6629ceb39adec1", "c1c0e6254f55db1d"),
    "int32": ("c490cb4d77849c41", "439f06ef7a8bfa8a"),
    "int64": ("9e4cc15944438282", "5c746f0771e14a3b"),
    "uint8": ("8601c841241dd05a", "8d2ae7452346a91b"),
    "uint16": ("600f31fe8f6db074", "aab7ed1bbe8c4eae"),
    "uint32": ("d77858ba353abed2", "b4ac970181ae3fa7"),
    "uint64": ("51e65c0f5c48c9ce", "72e493d3f8c5b1a0"),
    "float16": ("5843b62176142b3f", "d392dd3fde412a6d"),
    "bfloat16": ("76947f7521522142", "28c2454edfba13a6"),
    "float32": ("62ac557ec90e8cb9", "520995e9bb744f0a"),
    "float64": ("ae2473743c3760cd", "eeb5f6682d8b6a49"),
    "float8_e4m3fn": ("eb009cc085758a56", "9bf2276925b8af9f"),
    "float8_e4m3fnuz": ("d1b2e03a690a00aa", "e6d21a26fff0561a"),
    "float8_e5m2": ("6e63ed6d44a2e0dd", "0afa04196457f124"),
    "float8_e5m2fnuz": ("5a1e720473437a75", "aa499b960c2049ae"),
}


def counting(dtype: str) -> Bytes:
    """Return 1,000 elements whose bytes grow in steps of 7."""
    held = stored(dtype)
    raw = (np.arange(1000 * held.itemsize) * 7 % 251).astype(np.uint8)
    return (raw % 2).view(held) if dtype == "bool" else raw.view(held)


@pytest.mark.parametrize("dtype", GOLDEN)
def test_the_definition_has_not_changed(variants: Variants, dtype: str) -> None:
    array = counting(dtype)
    for name in variants.names:
        got = variants.of(name, array, dtype, None, 2026 << 64 | 711)
        assert (f"{got.checksum:016x}", f"{variants.of(name, array[:7], dtype).checksum:016x}") == GOLDEN[dtype]


def test_the_sketch_of_sixteen_numbers_has_not_changed(variants: Variants) -> None:
    for name in variants.names:
        got = variants.of(name, np.arange(1, 17, dtype=np.float32), "float32")
        assert list(got.sketch) == [10, -9, -12, -11, 14, -13, -16, 15, 2, -1, 4, 3, -6, -5, -8, -7]


# ---- the sketch ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 5000), st.integers(0, 2**32), st.integers(0, 2**128 - 1))
def test_the_sketch_of_a_difference_is_the_difference_of_the_sketches(
    variants: Variants, count: int, seed: int, key: int
) -> None:
    one, other = np.random.default_rng(seed).integers(-1000, 1000, (2, count)).astype(np.float32)
    for name in variants.names:
        a, b, d = (np.array(variants.of(name, each, "float32", None, key).sketch) for each in (one, other, one - other))
        assert (a - b == d).all()


def bf16(x: Floats) -> Floats:
    bits = x.astype(np.float32).view(np.uint32)
    rounded: Floats = (
        (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    )
    return rounded


def flipped(x: Floats, where: Any) -> Floats:
    y = x.copy()
    y[where] *= -1
    return y


def zeroed(x: Floats, where: Any) -> Floats:
    y = x.copy()
    y[where] = 0
    return y


def scaled(x: Floats, where: Any, factor: float) -> Floats:
    y = x.copy()
    y[where] *= factor
    return y


def added(x: Floats, size: float, random: np.random.Generator) -> Floats:
    return x + size * random.standard_normal(x.shape)


KINDS: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "rounded to bfloat16": lambda x, random: bf16(x),
    "rounded to float16": lambda x, random: x.astype(np.float16).astype(np.float64),
    "a row with the other sign": lambda x, random: flipped(x, random.integers(len(x))),
    "all signs": lambda x, random: -x,
    "a row of zeros": lambda x, random: zeroed(x, random.integers(len(x))),
    "a block of zeros": lambda x, random: zeroed(x, np.s_[8:24, 32:64]),
    "a channel off by 1 %": lambda x, random: scaled(x, np.s_[:, random.integers(x.shape[1])], 1.01),
    "every 16th off by 1 %": lambda x, random: scaled(x, np.s_[:, ::16], 1.01),
    "every 8th without sign": lambda x, random: zeroed(x, np.s_[:, ::8]),
    "rolled": lambda x, random: np.roll(x, 1),
    "scaled a little": lambda x, random: x * (1 + 1e-6),
    "scaled twice": lambda x, random: x * 2,
    "noise of 1e-5": lambda x, random: added(x, 1e-5, random),
    "noise of 1e-3": lambda x, random: added(x, 1e-3, random),
    "noise of 1e-1": lambda x, random: added(x, 1e-1, random),
}


@pytest.mark.ci
def test_the_error_between_two_tensors_is_known_from_their_fingerprints(variants: Variants) -> None:
    near, tried = dict.fromkeys(KINDS, 0), 10
    for kind, change in KINDS.items():
        for seed in range(tried):
            random = np.random.default_rng(seed)
            x = random.standard_normal((64, 64))
            y = change(x, random)
            key = int(random.integers(2**63))
            a, b = (variants.of(variants.names[-1], each, "float64", None, key) for each in (x, y))
            estimate = np.linalg.norm(np.array(a.sketch, np.float64) - np.array(b.sketch, np.float64)) / a.l2
            near[kind] += 0.66 <= estimate / (np.linalg.norm(x - y) / np.linalg.norm(x)) <= 1.33
    assert sum(near.values()) >= 0.9 * tried * len(KINDS), near


def test_large_and_small_numbers_together_lose_nothing_of_the_norm(variants: Variants) -> None:
    array = np.full(1 << 16, 1e-4, np.float32)
    array[::1024] = 1e30
    array[512::1024] = -1e30
    for name in variants.names:
        assert differences(variants.of(name, array, "float32"), expected(array, "float32")) == []


def test_the_norm_of_one_number_is_that_number_up_to_rounding(variants: Variants) -> None:
    for number in np.linspace(1, 4, 64):
        assert variants.of(variants.names[0], np.array([number]), "float64").l2 == pytest.approx(number, rel=1e-15)


@pytest.mark.parametrize("magnitude", [1.7e308, 1e200, 1e-200, 1e-308, 5e-324])
def test_float64_of_any_size_neither_overflows_nor_underflows(variants: Variants, magnitude: float) -> None:
    random = np.random.default_rng(1)
    array = random.choice([-1.0, 0.5, 1.0, np.nan], 5000) * magnitude
    for each in (array, array[::-3], array[:5]):
        for name in variants.names:
            assert differences(variants.of(name, each, "float64"), expected(each, "float64")) == []


# ---- arguments of C -------------------------------------------------------------------------------------------------

INTS = ctypes.c_int64 * 3


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"dtype": 0}, "its dtype is not one of brick_dtype"),
        ({"dtype": 18}, "its dtype is not one of brick_dtype"),
        ({"dtype": 2**32 - 1}, "its dtype is not one of brick_dtype"),
        ({"dims": 65}, "it has more than 64 dimensions"),
        ({"shape": None}, "it has no shape"),
        ({"shape": INTS(2, -1, 4)}, "a dimension is negative"),
        ({"shape": INTS(-1, 0, 4)}, "a dimension is negative"),
        ({"shape": INTS(2**31, 2**31, 2**31)}, "it has more than 2^63 bytes"),
        ({"shape": INTS(2**31, 2**30, 1)}, "it has more than 2^63 bytes"),
        ({"valid": 3}, "it has fewer rows than are valid"),
        ({"valid": 0, "dims": 0}, "it has fewer rows than are valid"),
        ({"valid": 0, "shape": INTS(-1, 3, 4)}, "it has fewer rows than are valid"),
        ({"data": None}, "it has no data"),
    ],
)
def test_an_invalid_tensor_is_refused_with_a_reason(variants: Variants, wrong: dict[str, Any], text: str) -> None:
    array = np.ones((2, 3, 4), np.float64)
    given = tensor(array, "float64")
    for field, value in wrong.items():
        setattr(given, field, value)
    refused, found = variants.ask("generic", given)
    assert refused == text
    assert bytes(found) == bytes(ctypes.sizeof(found))


def test_an_empty_tensor_needs_no_memory(variants: Variants) -> None:
    for shape in (INTS(0, 3, 4), INTS(2**62, 0, 2**62)):
        reported, found = variants.ask("generic", Tensor(None, CODES["float32"], 3, shape, None, ALL_ROWS))
        assert (reported, found.elements, found.l2, found.fnv1a) == ("", 0, 0.0, SEEDS[""])
    assert variants.ask("generic", Tensor(None, CODES["int8"], 1, INTS(7), None, 0))[1].elements == 0


def test_without_strides_the_order_is_that_of_c(variants: Variants) -> None:
    array = arrays("int16", (2, 3, 4), 0)
    bare = Tensor(array.ctypes.data, CODES["int16"], 3, INTS(2, 3, 4), None, 1)
    assert variants.ask("generic", bare)[1].checksum == variants.of("generic", array[:1], "int16").checksum


@pytest.mark.parametrize(
    "modes", [0x1F80, 0x0000, 0x7F80, 0x5F80, 0xFFC0], ids=["usual", "traps", "to zero", "up", "flush"]
)
def test_floating_point_modes_change_no_result_and_are_preserved(variants: Variants, modes: int) -> None:
    """The test enables floating-point traps, so an unguarded NaN or subnormal number would end this process."""
    for dtype in ("float16", "float32", "float64"):
        array = arrays(dtype, (5000,), 3)
        array[:5] = np.array([np.nan, np.inf, 1e-310, 1e-40, 6e-8]).astype(array.dtype)
        reported, got = variants.under(modes, tensor(array, dtype))
        assert reported == ""
        assert differences(got, expected(array, dtype)) == []


@pytest.mark.slow
def test_an_engine_compiled_with_fast_math_gets_the_same_results(compiled: Compile) -> None:
    # The flags of -ffast-math, but not its start-up code, which would change the floating-point modes of this whole
    # process.
    flags = ("-ffinite-math-only", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math", "-freciprocal-math")
    fast = Variants(compiled("fingerprint-fast.so", SOURCES, "-O3", *flags, "-shared", "-fPIC"))
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        array = arrays(dtype, (5000,), 3)
        for name in fast.names:
            assert differences(fast.of(name, array, dtype), expected(array, dtype)) == [], name
