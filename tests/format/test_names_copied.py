"""Names that are written while the reader copies them."""

from __future__ import annotations

import subprocess

import pytest
from conftest import ROOT
from faults import NATIVE, Compile

READER = ROOT / "brickd" / "reader"
SOURCES = (NATIVE / "names.c", READER / "core" / "segment_copy.c", READER / "core" / "summary_math.c")


@pytest.mark.parametrize("number", [0, *(pytest.param(each, marks=pytest.mark.ci) for each in (255, 256, 1023))])
@pytest.mark.parametrize("read", [1, 2])
def test_a_name_read_while_it_is_written_is_complete_or_not_ready(compiled: Compile, number: int, read: int) -> None:
    program = compiled("names", SOURCES, "-I", str(READER))
    ended = subprocess.run([program, str(number), str(read)], check=True, capture_output=True)
    assert ended.stdout in (b"late", b"not ready")
