"""The fingerprint as it is defined, in slow and obvious numpy, without brickd's C code."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# An array that has the elements as unsigned integers of the same width. numpy itself does not know some of these
# dtypes.
Bytes = npt.NDArray[Any]

CODES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "uint8": 6,
    "uint16": 7,
    "uint32": 8,
    "uint64": 9,
    "float16": 10,
    "bfloat16": 11,
    "float32": 12,
    "float64": 13,
    "float8_e4m3fn": 14,
    "float8_e4m3fnuz": 15,
    "float8_e5m2": 16,
    "float8_e5m2fnuz": 17,
}
STORED = {"bfloat16": "uint16"} | {name: "uint8" for name in CODES if name.startswith("float8")}
_SMALL = {  # for each small dtype: exponent bits, bias, and whether infinity and NaN have the patterns of IEEE 754
    "float8_e4m3fn": (4, 7, "fn"),
    "float8_e4m3fnuz": (4, 8, "fnuz"),
    "float8_e5m2": (5, 15, "ieee"),
    "float8_e5m2fnuz": (5, 16, "fnuz"),
}


def stored(dtype: str) -> np.dtype[Any]:
    """Return the numpy dtype that stores elements of a dtype."""
    return np.dtype(STORED.get(dtype, dtype))


def _small(byte: int, exponent_bits: int, bias: int, kind: str) -> float:
    mantissa_bits = 7 - exponent_bits
    exponent, mantissa = byte >> mantissa_bits & (1 << exponent_bits) - 1, byte & (1 << mantissa_bits) - 1
    if (kind == "fn" and byte & 0x7F == 0x7F) or (kind == "fnuz" and byte == 0x80):
        return float("nan")
    if kind == "ieee" and exponent == (1 << exponent_bits) - 1:
        return float("nan") if mantissa else (-1) ** (byte >> 7) * float("inf")
    significand = mantissa / (1 << mantissa_bits) + (exponent > 0)
    value: float = (-1) ** (byte >> 7) * significand * 2.0 ** (max(exponent, 1) - bias)
    return value


def values(flat: Bytes, dtype: str) -> npt.NDArray[np.float64]:
    """Return the elements as numbers."""
    if dtype == "bfloat16":
        return np.asarray((flat.astype("<u4") << 16).view(np.float32), np.float64)
    if dtype in _SMALL:
        table = np.array([_small(byte, *_SMALL[dtype]) for byte in range(256)])
        return np.asarray(table[flat], np.float64)
    if dtype == "bool":
        return np.asarray(flat.view(np.uint8) != 0, np.float64)
    return np.asarray(flat, np.float64)


def splitmix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def siphash(message: bytes, key: int) -> int:
    """Return the SipHash-2-4 of any number of bytes, as its authors define it."""
    k0, k1 = key % 2**64, key >> 64
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def half_round(a: int, b: int, c: int, d: int, s: int, t: int) -> None:
        v[a], v[c] = (v[a] + v[b]) % 2**64, (v[c] + v[d]) % 2**64
        v[b], v[d] = (v[b] << s | v[b] >> 64 - s) % 2**64 ^ v[a], (v[d] << t | v[d] >> 64 - t) % 2**64 ^ v[c]
        v[a] = (v[a] << 32 | v[a] >> 32) % 2**64

    def rounds(count: int) -> None:
        for _ in range(count):
            half_round(0, 1, 2, 3, 13, 16)
            half_round(2, 1, 0, 3, 17, 21)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def hashes(blocks: int, key: int) -> npt.NDArray[np.uint64]:
    return splitmix64(np.arange(blocks, dtype=np.uint64) ^ np.uint64(siphash(b"", key)))


def weights(blocks: int, key: int) -> npt.NDArray[np.uint64]:
    """Return the weights of the words of all blocks."""
    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
    constants = (np.cbrt(primes) % 1 * 2**32).astype(np.uint64)
    return (hashes(blocks, key)[:, None] >> np.uint64(32) ^ constants) | np.uint64(1)


def checksum(data: bytes, dtype: str, key: int) -> int:
    words = np.frombuffer(data + bytes(-len(data) % 64), "<u4").astype(np.uint64).reshape(-1, 16)
    total = int((words * weights(len(words), key)).sum(dtype=np.uint64))
    return siphash(struct.pack("<3Q", total, len(data), CODES[dtype]), key)


def fnv1a(flat: Bytes, dtype: str) -> int:
    first = flat[:64]
    if dtype != "float32":
        first = values(first, dtype).astype(np.float32)
        first[np.isnan(first)] = np.array(0x7FC00000, np.uint32).view(np.float32)
    result = 0xCBF29CE484222325
    for byte in first.astype("<f4").tobytes() if dtype != "float32" else first.tobytes():
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


def sketch(elements: npt.NDArray[np.float64], key: int) -> npt.NDArray[np.longdouble]:
    """Return the sketch before rounding."""
    finite = np.where(np.isfinite(elements), elements, 0.0)
    block, lane = np.divmod(np.arange(len(finite), dtype=np.uint64), np.uint64(16))
    h = hashes(-(-len(finite) // 16), key)[block.astype(int)] if len(finite) else np.zeros(0, np.uint64)
    signs = 1 - 2 * (h >> lane & np.uint64(1)).astype(np.int64)
    places = np.zeros(16, np.longdouble)
    np.add.at(places, (lane ^ (h >> np.uint64(16) & np.uint64(15))).astype(int), signs * finite.astype(np.longdouble))
    return places


@dataclass
class Expected:
    """The values as defined; the sketch and the norms have more digits than a fingerprint stores."""

    checksum: int
    fnv1a: int
    elements: int
    bytes: int
    nan: int
    pos_inf: int
    neg_inf: int
    min: float
    max: float
    mean: np.longdouble
    l2: np.longdouble
    sketch: npt.NDArray[np.longdouble]


@np.errstate(all="ignore")
def expected(array: Bytes, dtype: str, valid: int | None = None, key: int = 0) -> Expected:
    rows = array if valid is None else array[:valid]
    flat = np.ascontiguousarray(rows).reshape(-1)
    elements = values(flat, dtype)
    finite = elements[np.isfinite(elements)].astype(np.longdouble)
    return Expected(
        checksum(flat.tobytes(), dtype, key),
        fnv1a(flat, dtype),
        flat.size,
        flat.nbytes,
        int(np.isnan(elements).sum()),
        int(np.isposinf(elements).sum()),
        int(np.isneginf(elements).sum()),
        float(finite.min(initial=np.inf)) if finite.size else 0.0,
        float(finite.max(initial=-np.inf)) if finite.size else 0.0,
        finite.sum() / finite.size if finite.size else np.longdouble(0),
        np.sqrt((finite**2).sum()),
        sketch(elements, key),
    )


@np.errstate(all="ignore")
def differences(got: Any, want: Expected) -> list[str]:
    """Return the values that are wrong in a fingerprint."""
    exact = ("checksum", "fnv1a", "elements", "bytes", "nan", "pos_inf", "neg_inf", "min", "max")
    wrong = [f"{name}: {getattr(got, name)} for {getattr(want, name)}" for name in exact
             if getattr(got, name) != getattr(want, name)]  # fmt: skip
    wrong += [f"{name}: -0" for name in ("min", "max") if str(getattr(got, name)) == "-0.0"]
    largest = max(abs(want.min), abs(want.max))
    # the norm was rounded to a value above the greatest double
    overflows = got.l2 == math.inf and want.l2 >= sys.float_info.max * (1 - 1e-12)
    if float(want.l2) != got.l2 and not overflows and not abs(got.l2 - want.l2) <= 1e-12 * want.l2 + 5e-324:
        wrong.append(f"l2: {got.l2} for {want.l2}")
    if not abs(got.mean - want.mean) <= 1e-12 * largest + 5e-324:
        wrong.append(f"mean: {got.mean} for {want.mean}")
    for place, (is_now, should_be) in enumerate(zip(got.sketch, want.sketch, strict=True)):
        least, most = (np.float32(should_be + sign * (1e-6 * want.l2 + abs(should_be) * 2.0**-24)) for sign in (-1, 1))
        if not least <= is_now <= most:
            wrong.append(f"sketch[{place}]: {is_now} for {should_be}")
    return wrong


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_uint32),
        ("dims", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("valid", ctypes.c_uint64),
    ]


class Fingerprint(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("checksum", "fnv1a", "elements", "bytes", "nan", "pos_inf", "neg_inf")),
        *((name, ctypes.c_double) for name in ("min", "max", "mean", "l2")),
        ("sketch", ctypes.c_float * 16),
    ]


class Key(ctypes.Structure):
    """struct brick_fingerprint_key."""

    _fields_ = [("words", ctypes.c_uint64 * 2)]

    @classmethod
    def of(cls, key: int) -> Key:
        return cls((key % 2**64, key >> 64))


ALL_ROWS = 2**64 - 1


class Variants:
    """The compiled fingerprint, in each variant that this machine can run."""

    def __init__(self, library: Path) -> None:
        self._native = ctypes.CDLL(str(library))
        for name in ("fingerprint_by", "fingerprint_in_pieces", "fingerprint_under"):
            getattr(self._native, name).restype = ctypes.c_char_p
        self.names = [name for name in ("generic", "sse2", "avx2", "avx512") if self.has(name)]

    def has(self, name: str) -> bool:
        nothing = Tensor(None, CODES["uint8"], 1, (ctypes.c_int64 * 1)(0), None, ALL_ROWS)
        return self.ask(name, nothing)[0] is not None

    def ask(self, name: str, tensor: Tensor, key: int = 0) -> tuple[str | None, Fingerprint]:
        """Return the reason why there is no fingerprint, or "", and the fingerprint."""
        found = Fingerprint()
        reported = self._native.fingerprint_by(name.encode(), ctypes.byref(tensor), Key.of(key), ctypes.byref(found))
        return None if reported is None else reported.decode(), found

    def in_pieces(self, name: str, tensor: Tensor, sizes: list[int], key: int = 0) -> Fingerprint:
        """Return the fingerprint computed in pieces; the list of sizes is repeated."""
        found = Fingerprint()
        bytes_ = (ctypes.c_uint64 * len(sizes))(*sizes)
        reported = self._native.fingerprint_in_pieces(
            name.encode(),
            ctypes.byref(tensor),
            Key.of(key),
            bytes_,
            ctypes.c_uint64(len(sizes)),
            ctypes.byref(found),
        )
        assert reported == b"", reported
        return found

    def siphash(self, words: Sequence[int], key: int) -> int:
        """Return the SipHash-2-4 of a message of whole words, computed by the C code."""
        self._native.siphash.restype = ctypes.c_uint64
        held = (ctypes.c_uint64 * len(words))(*words)
        return int(self._native.siphash(Key.of(key).words, held, ctypes.c_uint32(len(words))))

    def moved(self, tensor: Tensor, other: Tensor) -> int:
        """Begin a fingerprint with one tensor, and continue it with another. Return 0 (done), 1 (more pieces follow) or
        2 (the tensor moved).
        """
        return int(self._native.moved(ctypes.byref(tensor), ctypes.byref(other)))

    def under(self, modes: int, tensor: Tensor) -> tuple[str, Fingerprint]:
        """Return the fingerprint from the default variant, run with these modes in the floating-point control
        register."""
        found = Fingerprint()
        reported = self._native.fingerprint_under(modes, ctypes.byref(tensor), ctypes.byref(found))
        return reported.decode(), found

    def of(self, name: str, array: Bytes, dtype: str, valid: int | None = None, key: int = 0) -> Fingerprint:
        """The fingerprint of an array."""
        reported, found = self.ask(name, tensor(array, dtype, valid), key)
        assert reported == "", reported
        return found


def tensor(array: Bytes, dtype: str, valid: int | None = None) -> Tensor:
    """Return the C struct of an array; the array must live longer than the struct."""
    shape, strides = ((ctypes.c_int64 * array.ndim)(*each) for each in (array.shape, array.strides))
    data = array.__array_interface__["data"][0]
    return Tensor(data, CODES[dtype], array.ndim, shape, strides, ALL_ROWS if valid is None else valid)
