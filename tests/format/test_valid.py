"""Checks of values from files: the error names the invalid value, and no other exception is raised."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from brickd.base import json_values


@pytest.mark.parametrize("body", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_nan_and_infinity_are_refused_in_json(body: str) -> None:
    with pytest.raises(ValueError, match=r"expected a number, found -?(NaN|Infinity)"):
        json_values.parsed(body)


def test_too_large_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a number, found inf"):
        json_values.number(json_values.parsed("1e999"))


def test_a_document_is_limited_in_bytes_and_in_memory() -> None:
    assert json_values.document(b"[1]", 3) == [1]
    with pytest.raises(ValueError, match="expected at most 2 bytes, found 3"):
        json_values.document(b"[1]", 2)
    with pytest.raises(ValueError, match="at most 4194304 lists and objects"):
        json_values.document(b"[" + (1 << 22) * b"[]," + b"0]", 1 << 30)


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), TypeError("x"), ZeroDivisionError("x"), MemoryError("x"), zlib.error("x")]
)
def test_any_exception_while_decoding_a_file_becomes_one_error(error: Exception) -> None:
    with pytest.raises(ValueError, match=r"^has an invalid structure: .*x"), json_values.validating():
        raise error


def test_unlimited_depth_is_reported_and_an_interrupt_passes() -> None:
    with pytest.raises(ValueError, match="nested too deeply"), json_values.validating():
        json_values.parsed(100_000 * "[")
    with pytest.raises(KeyboardInterrupt), json_values.validating():
        raise KeyboardInterrupt


@pytest.mark.parametrize("value", [10**400, "x" * 10_000, [[]] * 1_000])
def test_a_quoted_value_is_short(value: Any) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        json_values.whole(value)
    assert len(str(error.value)) < 200
