"""JSON for people."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import pytest

from brickd.base.indented_json import indented


class Pair(NamedTuple):
    one: int
    other: Any


SCALARS = (None, True, False, 0, -1, 2**80, 0.0, -0.5, 1e300, 1e-7, "", "plain", 'a "quote" \\ and é\n\x1b\ud83d')


@pytest.mark.parametrize(
    "value",
    [
        *SCALARS,
        [],
        {},
        (),
        list(SCALARS),
        {f"key {number}é": value for number, value in enumerate(SCALARS)},
        [[], {}, (), [[]], [{}], {"": []}],
        {"a": {"b": {"c": [1, [2, {"d": None}]], "e": ()}}, "f": Pair(1, Pair(2, {}))},
    ],
)
def test_indented_json_is_that_of_the_standard_library(value: Any) -> None:
    assert indented(value) == json.dumps(value, indent=2)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": {"b": -math.inf}}])
def test_a_number_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        indented(value)
